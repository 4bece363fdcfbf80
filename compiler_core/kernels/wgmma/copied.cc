#include <fmt/format.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/printed_template.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/embedded.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/wgmma/wgmma_copied.h"
#include "compiler_core/kernels/wgmma/wgmma_product.h"

namespace kiln {
namespace {

constexpr int kDepth = WgmmaMatmulSchedule::kDepth;
constexpr int kTurnThreads = 256, kTurnPitch = 66;  // turn.cuh

tl::unexpected<Error> lacks(std::string_view what) {
  return fail(Code::kUnsupported,
              fmt::format("wgmma kernels with copies are not written for {}", what));
}

bool fits(const WgmmaMatmulSchedule& schedule, const Graph& graph, const MatmulProblem& problem) {
  return fits_blocks(schedule, problem, ends_in_boxes(graph, problem.n));
}

// One operand: `lines` of it exist, `copied` are laid out.
struct Copied {
  const MatmulOperand& operand;
  int64_t lines, copied, line_stride, depth_stride;

  int64_t tiles(int64_t depth) const { return ceil_div(copied, int64_t{64}) * (depth / kDepth); }
  std::string print(std::string_view name, int64_t k, int64_t depth) const {
    return fmt::format(
        "struct {} {{\n"
        "  static constexpr int channels = {}, all_channels = {}, positions = {};\n"
        "  static constexpr long channel_stride = {}, image_stride = 0;\n"
        "  static constexpr bool positions_inner = {};\n"
        "  KILN_INLINE bool locate(int position, long& at) {{\n"
        "    at = position * {}L;\n    return position < {};\n  }}\n}};\n",
        name, k, depth, copied, depth_stride, depth_stride != 1, line_stride, lines);
  }
};

}  // namespace

Status check_wgmma_copied(const Workload& workload) {
  if (!workload.graph.symbols().empty()) return lacks("sizes with symbols");
  const MatmulProblem problem = MatmulProblem::of(workload.graph);
  if (!is_half(problem.stored) || problem.result != DType::kF32)
    return lacks("products of other dtypes than fp16 and bf16, or sums of other dtypes than f32");
  if (check_wgmma(workload)) return lacks("what the copy engine reads as it lies");
  // A copy costs what some hundreds of lines do.
  constexpr int64_t kFewLines = 256, kMost = int64_t{1} << 29;
  if (problem.batches != 1 || problem.m < kFewLines || problem.n < kFewLines ||
      problem.k < kFewLines)
    return lacks("batches and few lines");
  if (round_up(problem.k, kDepth) * std::max(problem.m + 256, problem.n) >= kMost)
    return lacks("matrices of a gigabyte");
  return {};
}

Result<Source> print_wgmma_copied(const Graph& graph, const WgmmaCopiedSchedule& schedule,
                                  const Target& target) {
  const MatmulProblem problem = MatmulProblem::of(graph);
  if (!fits(schedule, graph, problem))
    return fail(Code::kInvalidArgument,
                "the operands do not allow " + to_schedule(schedule).to_string());
  const int64_t depth = round_up(problem.k, kDepth), line_bytes = depth * 2;
  const Copied a{problem.a, problem.m, round_up(problem.m, schedule.bm), problem.a.row_stride,
                 problem.a.column_stride};
  const Copied b{problem.b, problem.n, problem.n, problem.b.column_stride, problem.b.row_stride};
  const int64_t a_bytes = a.copied * line_bytes;
  WgmmaOperands operands;
  operands.types = fmt::format(
      "struct A {{\n  static constexpr bool depth_inner = true;\n"
      "  static constexpr int pitch = {0};\n"
      "  KILN_INLINE int step(int step) {{ return step * 128; }}\n}};\n"
      "struct B {{\n  static constexpr bool depth_inner = true;\n"
      "  static constexpr long image = 0;\n"
      "  KILN_INLINE int line(int line) {{ return line * {0}; }}\n"
      "  KILN_INLINE int step(int step) {{ return step * 128; }}\n}};\n",
      line_bytes);
  operands.device = {"wgmma_gather.cuh"};
  operands.source = fmt::format("GatheredTiles{{workspace, workspace + {}L}}", a_bytes);
  operands.steps = depth / kDepth;
  operands.copying_registers = 56;
  Source source = WgmmaProduct(graph, graph, schedule, problem, target).print(operands);
  source.text += a.print("LinesOfA", problem.k, depth) + b.print("LinesOfB", problem.k, depth) +
                 std::string(device_text("turn.cuh"));
  source.text += cuda_kernel(
      "turn", graph, kTurnThreads, 1,
      fmt::format("  const int block = static_cast<int>(block_index());\n"
                  "  if (block < {0})\n"
                  "    turn_images<LinesOfA>(in{1} + {2}L, reinterpret_cast<{5}*>(workspace), "
                  "block);\n"
                  "  else\n"
                  "    turn_images<LinesOfB>(in{3} + {4}L, reinterpret_cast<{5}*>(workspace + "
                  "{6}L), block - {0});\n",
                  a.tiles(depth), a.operand.input, a.operand.offset, b.operand.input,
                  b.operand.offset, memory_type(problem.stored), a_bytes));
  source.recipe.phases.insert(
      source.recipe.phases.begin(),
      {"turn", a.tiles(depth) + b.tiles(depth), kTurnThreads, 1, kDepth * kTurnPitch * 2});
  source.recipe.workspace_bytes = a_bytes + b.copied * line_bytes;
  return source;
}

namespace {

std::vector<Schedule> wgmma_copied_candidates(const Workload& workload, const Target& target) {
  const MatmulProblem problem = MatmulProblem::of(workload.graph);
  return ranked_schedules<WgmmaCopiedSchedule>(
      problem, target, [&](const auto& tried) { return fits(tried, workload.graph, problem); });
}

}  // namespace

const KernelTemplate& wgmma_copied() {
  static const PrintedTemplate<WgmmaCopiedSchedule> made({
      .version = 1,
      .backend = Backend::kCuda,
      .family = Family::kMatmul,
      .isa = "sm_90a",
      .check = check_wgmma_copied,
      .candidates = wgmma_copied_candidates,
      .print_for = print_wgmma_copied,
      .expected_efficiency = [](const Workload&) { return 0.6; },
  });
  return made;
}

}  // namespace kiln
