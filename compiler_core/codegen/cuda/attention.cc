#include "compiler_core/codegen/cuda/attention.h"

#include <fmt/core.h>

#include <numeric>

#include "compiler_core/codegen/cuda/kernel_text.h"
#include "compiler_core/codegen/embedded.h"
#include "compiler_core/codegen/expression.h"

namespace kiln {
namespace {

class CudaAttentionKernel {
 public:
  CudaAttentionKernel(const Graph& graph, const CudaAttentionSchedule& schedule)
      : graph_(graph),
        schedule_(schedule),
        problem_(AttentionProblem::of(graph)),
        lanes_(problem_.keys % 2 == 0 && problem_.columns % 2 == 0 ? 2 : 1),
        row_blocks_((problem_.rows + rows() - 1) / rows()) {}

  Source print() const {
    Source source;
    source.recipe = argument_recipe(graph_);
    source.text = cuda_preamble(graph_, lanes_, {"mma.cuh"});
    source.text += print_problem() + std::string(template_text("attention.cuh"));
    source.text += cuda_kernel("attend_blocks", graph_, schedule_.threads(), 1, print_body());
    Phase phase;
    phase.entry = "attend_blocks";
    phase.grid = problem_.batches * row_blocks_;
    phase.threads = schedule_.threads();
    phase.shared_bytes = schedule_.shared_bytes(problem_);
    source.recipe.phases.push_back(std::move(phase));
    return source;
  }

 private:
  int64_t rows() const { return schedule_.warps * 16; }
  bool has_within() const { return problem_.scores_within != kInvalidNode; }

  std::string_view core() const {
    switch (problem_.stored) {
      case DType::kBF16:
        return "MmaBf16";
      case DType::kF16:
        return "MmaF16";
      default:
        return "MmaF32";
    }
  }

  // Whether rows of a head come in aligned chunks of 16 bytes.
  bool is_async(const AttentionOperand& operand, int64_t elements) const {
    const int64_t chunk = 16 / size_of(problem_.stored);
    int64_t common = std::gcd(std::gcd(operand.offset, operand.row_stride), chunk);
    for (const int64_t stride : operand.batch_strides) common = std::gcd(common, stride);
    return operand.column_stride == 1 && common == chunk && elements > 0;
  }

  std::string print_operand(std::string_view name, const AttentionOperand& operand,
                            int64_t elements) const {
    return fmt::format(
        "struct {} {{\n  using stored = {};\n"
        "  static constexpr index_t token_stride = {}, stride = {};\n"
        "  static constexpr bool async = {};\n}};\n",
        name, memory_type(problem_.stored), operand.row_stride, operand.column_stride,
        is_async(operand, elements));
  }

  std::string print_problem() const {
    const int64_t bytes = size_of(problem_.stored);
    return fmt::format(
               "struct Problem {{\n"
               "  static constexpr int rows = {}, keys = {}, depth = {}, columns = {};\n"
               "  static constexpr bool has_reach = {}, has_within = {};\n"
               "  static constexpr int reach = {};\n"
               "  static constexpr bool normalised = {}, guarded = {};\n}};\n",
               problem_.rows, problem_.keys, problem_.depth, problem_.columns,
               problem_.reach.has_value(), has_within(), problem_.reach.value_or(0),
               problem_.pattern.normalised, problem_.pattern.guarded) +
           fmt::format(
               "struct Tiling {{\n"
               "  static constexpr int warps = {}, keys = {}, stages = {};\n"
               "  static constexpr int depth = {}, columns = {};\n}};\n",
               schedule_.warps, schedule_.keys, schedule_.stages, shared_row(problem_.depth, bytes),
               shared_row(problem_.columns, bytes)) +
           print_operand("Query", problem_.query, problem_.depth) +
           print_operand("Key", problem_.key, problem_.depth) +
           print_operand("Value", problem_.value, problem_.columns);
  }

  // Coordinate `axis` of the number `batch`.
  std::string batch_coordinate(size_t axis) const {
    int64_t inner = 1;
    for (size_t i = axis + 1; i < problem_.batch.size(); ++i) inner *= problem_.batch[i];
    const std::string text = inner == 1 ? "batch" : fmt::format("batch / {}", inner);
    return axis == 0 ? text : fmt::format("{} % {}", text, problem_.batch[axis]);
  }

  std::string print_pointer(std::string_view name, const AttentionOperand& operand) const {
    std::string offset = fmt::format("{}L", operand.offset);
    for (size_t axis = 0; axis < problem_.batch.size(); ++axis)
      if (operand.batch_strides[axis] != 0)
        offset += fmt::format(" + batch{} * {}L", axis, operand.batch_strides[axis]);
    return fmt::format("  const auto* {} = in{} + ({});\n", name, operand.input, offset);
  }

  // [batch..., row, column].
  std::vector<Index> place(int64_t width) const {
    std::vector<Index> at;
    for (size_t axis = 0; axis < problem_.batch.size(); ++axis)
      at.push_back(LoopVar{fmt::format("batch{}", axis), LoopVar::Kind::kScalar, Level::kKernel, 0,
                           problem_.batch[axis]});
    at.push_back(LoopVar{"row", LoopVar::Kind::kScalar, Level::kOuter, 0, problem_.rows});
    at.push_back(LoopVar{"column", LoopVar::Kind::kVector, Level::kInner, 0, width, lanes_});
    return at;
  }

  static std::string statements(ExpressionPrinter& printer) {
    const std::string kernel = printer.take(Level::kKernel, 4);
    const std::string outer = printer.take(Level::kOuter, 4);
    return kernel + outer + printer.take(Level::kInner, 4);
  }

  std::string print_score(std::string_view name, NodeId scores) const {
    ExpressionPrinter printer(graph_, Dialect::kCuda);
    printer.bind(problem_.pattern.query_key, {"sums", Level::kInner});
    const std::string result = printer.value(scores, place(problem_.keys)).name;
    return fmt::format(
        "  const auto {} = [&](vf32 sums, index_t row, index_t column) {{\n"
        "    [[maybe_unused]] const AllLanes live{{}};\n{}    return {};\n  }};\n",
        name, statements(printer), result);
  }

  std::string print_epilogue() const {
    ExpressionPrinter printer(graph_, Dialect::kCuda);
    printer.bind(problem_.result, {"value", Level::kInner});
    if (problem_.sum_view != kInvalidNode) printer.bind(problem_.sum_view, {"sum", Level::kInner});
    const std::vector<Index> product = place(problem_.columns);
    std::vector<Index> at;
    for (int axis : problem_.result_axes) at.push_back(product[static_cast<size_t>(axis)]);
    printer.store(0, at);
    return fmt::format(
        "  const auto store_result = [&](vf32 value, vf32 sum, index_t row, index_t column) {{\n"
        "    const AllLanes live{{}};\n{}  }};\n",
        statements(printer));
  }

  std::string print_body() const {
    std::string text = fmt::format(
        "  const int block = static_cast<int>(block_index());\n"
        "  const index_t batch = block / {0};\n"
        "  const int first_row = block % {0} * {1};\n",
        row_blocks_, rows());
    for (size_t axis = 0; axis < problem_.batch.size(); ++axis)
      text += fmt::format("  [[maybe_unused]] const index_t batch{} = {};\n", axis,
                          batch_coordinate(axis));
    text += print_pointer("query", problem_.query) + print_pointer("key", problem_.key) +
            print_pointer("value", problem_.value);
    text += print_score("scores", problem_.pattern.scores);
    text += print_score("within", has_within() ? problem_.scores_within : problem_.pattern.scores);
    text += print_epilogue();
    return text + fmt::format(
                      "  attend<{}>(query, key, value, first_row, shared_memory(), scores, within, "
                      "store_result);\n",
                      core());
  }

  const Graph& graph_;
  const CudaAttentionSchedule schedule_;
  const AttentionProblem problem_;
  const int lanes_;
  const int64_t row_blocks_;
};

}  // namespace

Result<Source> lower_cuda_attention(const Graph& graph, const CudaAttentionSchedule& schedule) {
  return CudaAttentionKernel(graph, schedule).print();
}

}  // namespace kiln
