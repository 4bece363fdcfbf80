#include <fmt/format.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/printed_template.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/wgmma/wgmma_picked.h"
#include "compiler_core/kernels/wgmma/wgmma_product.h"
#include "compiler_core/kernels/wgmma/wgmma_text.h"

namespace kiln {
namespace {

constexpr int kPickedDepth = WgmmaMatmulSchedule::kDepth;
constexpr int kRunThreads = 1024, kRunBytes = 16;  // wgmma_picked.cuh

int64_t all_rows(const MatmulProblem& problem) {
  return problem.batches * problem.m;
}

// Rows of tiles at most, however the index has the rows.
int64_t most_row_tiles(const MatmulProblem& problem, const WgmmaMatmulSchedule& schedule) {
  return std::min(all_rows(problem) / schedule.bm + problem.batches,
                  problem.batches * ceil_div(problem.m, schedule.bm));
}

bool fits_picked(const WgmmaMatmulSchedule& schedule, const Graph& graph,
                 const MatmulProblem& problem) {
  const bool in_atoms = problem.b.row_stride == 1 || schedule.bn % 64 == 0;
  const int64_t tiles = most_row_tiles(problem, schedule) * ceil_div(problem.n, schedule.bn);
  return in_atoms && schedule.ping_pong == 0 &&
         fits_blocks(schedule, problem, ends_in_boxes(graph, problem.n)) &&
         tiles < int64_t{1} << 31;
}

// Rows follow each other at this pitch, in elements.
int64_t pitch_of_rows(const MatmulProblem& problem) {
  if (all_rows(problem) == 1) return problem.k;
  return problem.m == 1 ? problem.a.batch_strides[0] : problem.a.row_stride;
}

TensorMap map_of_rows(const MatmulProblem& problem, const WgmmaMatmulSchedule& schedule) {
  TensorMap map;
  map.buffer = problem.a.input;
  map.dtype = problem.stored;
  map.offset = problem.a.offset * size_of(map.dtype);
  map.sizes = {problem.k, all_rows(problem)};
  map.strides = {pitch_of_rows(problem) * size_of(map.dtype)};
  map.box = {kPickedDepth, schedule.bm};
  finish_map(map);
  return map;
}

TensorMap map_of_table(const MatmulProblem& problem, const WgmmaMatmulSchedule& schedule) {
  const MatmulOperand& b = problem.b;
  const bool depth_inner = b.row_stride == 1;
  TensorMap map;
  map.buffer = b.input;
  map.dtype = problem.stored;
  map.offset = b.offset * size_of(map.dtype);
  map.sizes = {depth_inner ? problem.k : problem.n, depth_inner ? problem.n : problem.k};
  map.strides = {(depth_inner ? b.column_stride : b.row_stride) * size_of(map.dtype)};
  map.box = {kPickedDepth, depth_inner ? schedule.bn : kPickedDepth};
  add_batch_axis(map, b.matrices, b.matrices == 1 ? problem.k * problem.n : b.batch_strides[0]);
  finish_map(map);
  return map;
}

std::string print_operand(std::string_view name, bool depth_inner, std::string_view place) {
  return fmt::format(
      "struct {} {{\n"
      "  static constexpr bool depth_inner = {};\n"
      "  static KILN_MEMBER void copy(char* to, const CUtensorMap* map, char* barrier, int line,\n"
      "                               int depth, [[maybe_unused]] int matrix) {{\n"
      "    copy_box(to, map, barrier, {{{}}});\n  }}\n}};\n",
      name, depth_inner, place);
}

// Shares of the work as if the rows were shared out evenly: a matrix has so many.
MatmulProblem even_problem(const MatmulProblem& problem) {
  MatmulProblem even = problem;
  even.batches = std::min(problem.batches, problem.b.matrices);
  even.batch = {even.batches};
  even.m = ceil_div(all_rows(problem), even.batches);
  return even;
}

}  // namespace

Status check_wgmma_picked(const Workload& workload) {
  const bool known = workload.graph.symbols().empty();
  if (!known || MatmulProblem::of(workload.graph).b.picked_by < 0)
    return fail(Code::kUnsupported,
                "wgmma kernels for matrices that an index picks have such a second operand");
  return {};
}

Result<Source> print_wgmma_picked(const Graph& graph, const WgmmaPickedSchedule& schedule,
                                  const Target& target) {
  const MatmulProblem problem = MatmulProblem::of(graph);
  if (!fits_picked(schedule, graph, problem))
    return fail(Code::kInvalidArgument,
                "the operands do not allow " + to_schedule(schedule).to_string());
  const int64_t most = most_row_tiles(problem, schedule);
  WgmmaOperands operands;
  operands.b_inner = problem.b.row_stride == 1;
  operands.types =
      fmt::format(
          "struct Runs {{\n  static constexpr int indices = {}, rows = {}, matrices = {};\n}};\n",
          problem.batches, problem.m, problem.b.matrices) +
      print_operand("A", true, "depth, line") +
      print_operand("B", operands.b_inner,
                    operands.b_inner ? "depth, line, matrix" : "line, depth, matrix");
  operands.device = {"wgmma_tiles.cuh", "wgmma_picked.cuh"};
  operands.source = "PickedTiles{&a_map, &b_map, reinterpret_cast<const Run*>(workspace)}";
  operands.maps = {{"a", map_of_rows(problem, schedule)}, {"b", map_of_table(problem, schedule)}};
  operands.steps = ceil_div(problem.k, int64_t{kPickedDepth});
  Source source = WgmmaProduct(graph, graph, schedule, problem, ProductSizes::of(problem), target,
                               WgmmaRuns{most})
                      .print(operands);
  source.text += cuda_kernel(
      "find", graph, kRunThreads, 1,
      fmt::format("  find_runs(in{}, reinterpret_cast<Run*>(workspace));\n", problem.b.picked_by));
  source.recipe.phases.insert(source.recipe.phases.begin(),
                              {"find", 1, kRunThreads, 1, 2 * kRunThreads * 4});
  source.recipe.workspace_bytes = (1 + most) * kRunBytes;
  return source;
}

std::vector<Schedule> wgmma_picked_candidates(const Workload& workload, const Target& target) {
  const MatmulProblem problem = MatmulProblem::of(workload.graph);
  const MatmulProblem even = even_problem(problem);
  return ranked_schedules<WgmmaPickedSchedule>(
      even, target, [&](const auto& tried) { return fits_picked(tried, workload.graph, problem); });
}

namespace {

double wgmma_picked_efficiency(const Workload& workload) {
  constexpr int64_t kFewRows = 64;
  return even_problem(MatmulProblem::of(workload.graph)).m <= kFewRows ? 0.55 : 0.8;
}

}  // namespace

const KernelTemplate& wgmma_picked() {
  static const PrintedTemplate<WgmmaPickedSchedule> made({
      .version = 13,
      .backend = Backend::kCuda,
      .family = Family::kMatmul,
      .isa = "sm_90a",
      .check = check_wgmma_picked,
      .candidates = wgmma_picked_candidates,
      .print_for = print_wgmma_picked,
      .expected_efficiency = wgmma_picked_efficiency,
  });
  return made;
}

}  // namespace kiln
