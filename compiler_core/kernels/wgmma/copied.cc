#include <fmt/format.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/printed_template.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/device_text.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/wgmma/wgmma_copied.h"
#include "compiler_core/kernels/wgmma/wgmma_product.h"

namespace kiln {
namespace {

constexpr int kCopyDepth = WgmmaMatmulSchedule::kDepth;
constexpr int kCopyThreads = 256, kCopyPitch = 66;  // turn.cuh

tl::unexpected<Error> copies_lack(std::string_view what) {
  return fail(Code::kUnsupported,
              fmt::format("wgmma kernels with copies are not written for {}", what));
}

bool fits_copied(const WgmmaMatmulSchedule& schedule, const Graph& graph,
                 const MatmulProblem& problem) {
  return fits_blocks(schedule, problem, ends_in_boxes(graph, problem.n));
}

// One operand: `lines` of it exist, `copied` are laid out, of each of `batches`.
struct Copied {
  const MatmulOperand& operand;
  int64_t lines, copied, line_stride, depth_stride, batches = 1, batch_stride = 0;

  int64_t tiles(int64_t depth) const {
    return batches * ceil_div(copied, int64_t{64}) * (depth / kCopyDepth);
  }
  // Lines side by side that one load takes; 0: they lie otherwise.
  int64_t vector() const {
    if (line_stride != 1 || copied != lines) return 0;
    for (const int64_t count : {8, 4, 2})
      if (lines % count == 0 && depth_stride % count == 0 && batch_stride % count == 0 &&
          operand.offset % count == 0)
        return count;
    return 0;
  }
  std::string print(std::string_view name, int64_t k, int64_t depth) const {
    return fmt::format(
        "struct {} {{\n"
        "  static constexpr int channels = {}, all_channels = {}, positions = {};\n"
        "  static constexpr long channel_stride = {}, image_stride = {};\n"
        "  static constexpr bool positions_inner = {};\n"
        "  static constexpr int vector = {}, plane = {}, row = plane, all_width = plane;\n"
        "  static constexpr int height = 1, width = plane, above = 0, before = 0;\n"
        "  KILN_INLINE bool locate(int position, long& at) {{\n"
        "    at = position * {}L;\n    return position < {};\n  }}\n}};\n",
        name, k, depth, copied, depth_stride, batch_stride, depth_stride != 1, vector(), copied,
        line_stride, lines);
  }
  // A call that lays out tile `tile` at `to`.
  std::string print_turn(std::string_view name, DType stored, std::string_view to,
                         std::string_view tile) const {
    return fmt::format("    {}<{}>(in{} + {}L, reinterpret_cast<{}*>({}), {});\n",
                       vector() > 0 ? "turn_planes" : "turn_images", name, operand.input,
                       operand.offset, memory_type(stored), to, tile);
  }
};

// Lines that can be gathered from where they are: whole tiles of them, each of whole steps.
bool lies_in_lines(const MatmulOperand& a, const MatmulProblem& problem, int bm) {
  return a.column_stride == 1 && a.row_stride % 8 == 0 && a.offset % 8 == 0 &&
         problem.m % bm == 0 && problem.k % kCopyDepth == 0;
}

}  // namespace

Status check_wgmma_copied(const Workload& workload) {
  if (!workload.graph.symbols().empty()) return copies_lack("sizes with symbols");
  TRY_STATUS(check_operands_are_stored(workload));
  const MatmulProblem problem = MatmulProblem::of(workload.graph);
  if (!is_16_bit_float(problem.stored) || problem.result != DType::kF32)
    return copies_lack(
        "products of other dtypes than fp16 and bf16, or sums of other dtypes than f32");
  if (check_wgmma(workload)) return copies_lack("what the copy engine reads as it lies");
  // A copy costs what some hundreds of lines do. Of batches (images, whose windows are single
  // elements) only the second operand may be another in each.
  constexpr int64_t kFewLines = 256, kFewRows = 64, kMost = int64_t{1} << 29;
  const bool is_batched = problem.batches != 1;
  if (is_batched && (problem.batch.size() != 1 || problem.a.batch_strides[0] != 0 ||
                     problem.b.batch_strides[0] <= 0))
    return copies_lack("batches in which both operands differ");
  const int64_t few = is_batched ? kFewRows : kFewLines;
  if (problem.m < few || problem.batches * problem.n < kFewLines || problem.k < few)
    return copies_lack("few lines");
  if (round_up(problem.k, kCopyDepth) * std::max(problem.m + 256, problem.n * problem.batches) >=
      kMost)
    return copies_lack("matrices of a gigabyte");
  return {};
}

Result<Source> print_wgmma_copied(const Graph& graph, const WgmmaCopiedSchedule& schedule,
                                  const Target& target) {
  const MatmulProblem problem = MatmulProblem::of(graph);
  if (!fits_copied(schedule, graph, problem))
    return fail(Code::kInvalidArgument,
                "the operands do not allow " + to_schedule(schedule).to_string());
  const int64_t depth = round_up(problem.k, kCopyDepth), line_bytes = depth * 2;
  const bool in_place = lies_in_lines(problem.a, problem, schedule.bm);
  const Copied a{problem.a, problem.m, round_up(problem.m, schedule.bm), problem.a.row_stride,
                 problem.a.column_stride};
  Copied b{problem.b, problem.n, problem.n, problem.b.column_stride, problem.b.row_stride};
  if (problem.batches != 1) {
    b.batches = problem.batches;
    b.batch_stride = problem.b.batch_strides[0];
  }
  const int64_t a_bytes = in_place ? 0 : a.copied * line_bytes;
  const int64_t a_tiles = in_place ? 0 : a.tiles(depth);
  WgmmaOperands operands;
  operands.types = fmt::format(
      "struct A {{\n  static constexpr bool depth_inner = true;\n"
      "  static constexpr int pitch = {};\n"
      "  KILN_INLINE int step(int step) {{ return step * 128; }}\n}};\n"
      "struct B {{\n  static constexpr bool depth_inner = true;\n"
      "  static constexpr long image = {};\n"
      "  KILN_INLINE int line(int line) {{ return line * {}; }}\n"
      "  KILN_INLINE int step(int step) {{ return step * 128; }}\n}};\n",
      in_place ? problem.a.row_stride * 2 : line_bytes, b.copied * line_bytes, line_bytes);
  operands.device = {"wgmma_gather.cuh"};
  operands.source = fmt::format("GatheredTiles{{{}, workspace + {}L, sizes}}",
                                in_place ? fmt::format("reinterpret_cast<const char*>(in{} + {}L)",
                                                       a.operand.input, a.operand.offset)
                                         : std::string("workspace"),
                                a_bytes);
  operands.steps = depth / kCopyDepth;
  operands.copying_registers = 56;
  Source source = WgmmaProduct(graph, graph, schedule, problem, ProductSizes::of(problem), target)
                      .print(operands);
  if (!in_place) source.text += a.print("LinesOfA", problem.k, depth);
  source.text += b.print("LinesOfB", problem.k, depth) + std::string(device_text("turn.cuh"));
  std::string body = "  const int block = static_cast<int>(block_index());\n";
  if (!in_place)
    body += fmt::format("  if (block < {})\n{}  else\n", a_tiles,
                        a.print_turn("LinesOfA", problem.stored, "workspace", "block"));
  body += b.print_turn("LinesOfB", problem.stored, fmt::format("workspace + {}L", a_bytes),
                       fmt::format("block - {}", a_tiles));
  source.text += cuda_kernel("turn", graph, kCopyThreads, 1, body);
  source.recipe.phases.insert(
      source.recipe.phases.begin(),
      {"turn", a_tiles + b.tiles(depth), kCopyThreads, 1, kCopyDepth * kCopyPitch * 2});
  source.recipe.workspace_bytes = a_bytes + b.batches * b.copied * line_bytes;
  return source;
}

namespace {

std::vector<Schedule> wgmma_copied_candidates(const Workload& workload, const Target& target) {
  const MatmulProblem problem = MatmulProblem::of(workload.graph);
  return ranked_schedules<WgmmaCopiedSchedule>(problem, target, [&](const auto& tried) {
    return fits_copied(tried, workload.graph, problem);
  });
}

}  // namespace

const KernelTemplate& wgmma_copied() {
  static const PrintedTemplate<WgmmaCopiedSchedule> made({
      .version = 17,
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
