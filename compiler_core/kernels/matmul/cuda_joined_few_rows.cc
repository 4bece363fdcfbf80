// cuda.products.few_rows: products of one first operand of few rows, which wait for memory.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "compiler_core/kernels/matmul/cuda_matmul.h"
#include "compiler_core/kernels/matmul/cuda_product.h"
#include "compiler_core/kernels/matmul/joined_problem.h"
#include "compiler_core/kernels/matmul/rms_norm_text.h"
#include "compiler_core/kernels/printed_template.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/expression.h"

namespace kiln {
namespace {

constexpr int kLanes = 8;  // results a vector: 16 bytes of halves

class JoinedFewRowsKernel {
 public:
  JoinedFewRowsKernel(const Graph& graph, const CudaJoinedFewRowsSchedule& schedule)
      : graph_(graph),
        schedule_(schedule),
        problem_(JoinedProblem::of(graph)),
        norm_(graph, problem_.all.rms_norm),
        early_inputs_(problem_.second_operands()),
        width_(problem_.width(schedule.bn)) {
    if (const auto norm = norm_.input()) early_inputs_.insert(*norm);
  }

  Source print(const Target& target) const {
    const CudaMatmulSchedule tiles = schedule_.tiles();
    Source source;
    source.recipe = argument_recipe(graph_);
    source.text = cuda_preamble(graph_, kLanes,
                                {"mma.cuh", "matmul.cuh", "tile_sums.cuh", "matmul_few_rows.cuh"}) +
                  print_operands() + print_tiling(problem_.all, tiles);
    const int64_t blocks = problem_.tiles_before(problem_.parts.size(), schedule_.bn);
    Phase phase{"multiply", blocks * schedule_.splits, schedule_.threads(), schedule_.splits,
                schedule_.shared_bytes(problem_.all)};
    KernelParameters parameters(graph_);
    for (const int input : early_inputs_) parameters.add_ready(input);
    source.text += cuda_kernel(
        "multiply", graph_, schedule_.threads(),
        schedule_.blocks_an_sm(problem_.all, cuda_limits(target)),
        print_place() + print_steps(problem_.all.k, tiles) + print_multiply() + print_ending(),
        parameters.text(), KernelStart::kAsTheBodySays);
    phase.arguments = std::move(parameters).arguments();
    source.recipe.phases.push_back(std::move(phase));
    return source;
  }

 private:
  bool meets_in_cluster() const { return schedule_.splits > 1; }

  // The types A and B. B has as many lines as divide every output's columns: tiles that all are whole
  // need not look where they end.
  std::string print_operands() const {
    int64_t common = 0;
    for (const auto& part : problem_.parts) common = std::gcd(common, part.n);
    const auto operand = [&](std::string_view name, int64_t lines, int64_t stride,
                             const std::string& members) {
      return fmt::format(
          "struct {} {{\n"
          "  using stored = {};\n"
          "  static constexpr int lines = {}, depth = {};\n"
          "  static constexpr index_t line_stride = {};\n{}}};\n",
          name, memory_type(problem_.all.stored), lines, problem_.all.k, stride, members);
    };
    return operand("A", problem_.all.m, problem_.all.a.row_stride, norm_.members()) +
           operand("B", common, problem_.all.b.column_stride, "");
  }

  std::string print_place() const {
    std::string text = fmt::format(
        "  const int tile = static_cast<int>(block_index()){};\n"
        "  const int split = {};\n"
        "  const int part = {};\n"
        "  const int columns = {};\n"
        "  const int column0 = (tile - ({})) * {};\n"
        "  const A::stored* a = in{} + {};\n"
        "  const B::stored* const b[{}] = {{\n",
        meets_in_cluster() ? fmt::format(" / {}", schedule_.splits) : "",
        meets_in_cluster() ? "cluster_rank()" : "0", problem_.part_of("tile", schedule_.bn),
        problem_.by_part("part", [](const auto& part) { return std::to_string(part.n); }),
        problem_.first_tile("part", schedule_.bn), width_, problem_.all.a.input,
        problem_.all.a.offset, problem_.products);
    for (size_t i = 0; i < static_cast<size_t>(problem_.products); ++i)
      text += fmt::format("      {},\n", problem_.by_part("part", [&](const auto& part) {
        return fmt::format("in{} + {}", part.b[i].input, part.b[i].offset);
      }));
    return text + "  };\n";
  }

  std::string print_multiply() const {
    return fmt::format(
        "  const auto tile_sums = multiply_few_rows<{}, A, B, Tiling, {}>(\n"
        "      a, b, {}, columns, 0, column0, begin, end, {}, [] {{}}, shared_memory());\n",
        problem_.all.stored == DType::kBF16 ? "MmaBf16" : "MmaF16", schedule_.splits,
        norm_.pointer(), are_ready(early_inputs_));
  }

  // The vectors of the tile that are this block's.
  std::string print_ending() const {
    std::string text = fmt::format(
        "  _Pragma(\"unroll 2\") for (int own = thread_index(); own < tile_sums.vectors; own += "
        "{0}) "
        "{{\n"
        "    const int i = own * {1} + split;\n"
        "    const int tile_row = i / ({2} / LANES), tile_column = i % ({2} / LANES) * LANES;\n"
        "    const index_t row = tile_row, column = column0 + tile_column;\n"
        "    if (row >= {3} || column >= columns) continue;\n",
        schedule_.threads(), schedule_.splits, width_, problem_.all.m);
    for (int i = 0; i < problem_.products; ++i)
      text += fmt::format("    const Vec<Value> sums{0} = tile_sums(own, {0});\n", i);
    for (size_t i = 0; i < problem_.parts.size(); ++i) {
      const EpilogueText epilogue =
          joined_epilogue(graph_, static_cast<int>(i), problem_.parts[i].nodes.products, kLanes,
                          {.rms_norm = problem_.all.rms_norm ? &*problem_.all.rms_norm : nullptr});
      text +=
          fmt::format("    if (part == {}) {{\n{}{}    }}\n", i, epilogue.once, epilogue.vector);
    }
    return text + "  }\n";
  }

  const Graph& graph_;
  const CudaJoinedFewRowsSchedule schedule_;
  const JoinedProblem problem_;
  const RmsNormText norm_;
  std::set<int> early_inputs_;  // what is read before the kernel in front of this one has ended
  const int64_t width_;
};

bool fits_rows(const CudaJoinedFewRowsSchedule& schedule, const JoinedProblem& problem) {
  return schedule.bn % (16 * problem.products) == 0 && fits(schedule, problem.all);
}

Status check_joined_few_rows(const Workload& workload) {
  const Dim rows = JoinedProblem::of(workload.graph).rows;
  if (rows.is_constant() && rows.constant() <= kMostFewRows) return {};
  return fail(
      Code::kUnsupported,
      fmt::format("kernels of few rows are written for {} at most, and no symbols", kMostFewRows));
}

std::vector<Schedule> joined_few_rows_candidates(const Workload& workload, const Target& target) {
  const JoinedProblem problem = JoinedProblem::of(workload.graph);
  std::vector<Schedule> space = ranked_few_rows(problem.all, target, problem.products);
  for (Schedule& schedule : space)
    schedule.template_name = CudaJoinedFewRowsSchedule::kTemplate;  // of the same decisions
  return space;
}

Result<Source> print_joined_few_rows(const Graph& graph, const CudaJoinedFewRowsSchedule& schedule,
                                     const Target& target) {
  TRY_STATUS(check_cluster(schedule.tiles(), target));
  if (!fits_rows(schedule, JoinedProblem::of(graph)))
    return fail(Code::kInvalidArgument,
                "the operands do not allow " + to_schedule(schedule).to_string());
  return JoinedFewRowsKernel(graph, schedule).print(target);
}

}  // namespace

const KernelTemplate& cuda_joined_few_rows() {
  static const PrintedTemplate<CudaJoinedFewRowsSchedule> made({
      .version = 5,
      .backend = Backend::kCuda,
      .family = Family::kProducts,
      .check = check_joined_few_rows,
      .candidates = joined_few_rows_candidates,
      .print_for = print_joined_few_rows,
      .expected_efficiency = [](const Workload&) { return 0.75; },
  });
  return made;
}

}  // namespace kiln
