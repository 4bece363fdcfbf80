#include "compiler_core/kernels/attention/cuda_attention.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/kernels/printing/coordinates.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/embedded.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

class CudaAttentionKernel {
 public:
  CudaAttentionKernel(const Graph& graph, const CudaAttentionSchedule& schedule)
      : graph_(graph),
        schedule_(schedule),
        problem_(AttentionProblem::of(graph)),
        lanes_(is_multiple(problem_.keys, 2) && problem_.columns % 2 == 0 ? 2 : 1),
        row_blocks_(ceil_text(problem_.rows, rows())) {}

  Source print() const {
    Source source;
    source.recipe = argument_recipe(graph_);
    source.text = cuda_preamble(graph_, lanes_, {"mma.cuh"});
    source.text += print_problem() + std::string(device_text("attention.cuh"));
    source.text += cuda_kernel("attend_blocks", graph_, schedule_.threads(), 1, print_body());
    Phase phase;
    phase.entry = "attend_blocks";
    phase.grid = Grid({GridAxis{problem_.batches}, GridAxis{problem_.rows, rows()}});
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
  bool is_async(const AttentionOperand& operand) const {
    const int64_t chunk = 16 / size_of(problem_.stored);
    return operand.column_stride.is(1) && is_multiple(operand.offset, chunk) &&
           is_multiple(operand.row_stride, chunk) &&
           std::all_of(operand.batch_strides.begin(), operand.batch_strides.end(),
                       [&](const Dim& stride) { return is_multiple(stride, chunk); });
  }

  // What is known at run time only is a member.
  static std::string print_size(std::string_view type, std::string_view name, const Dim& size) {
    return size.is_constant()
               ? fmt::format("  static constexpr {} {} = {};\n", type, name, size.constant())
               : fmt::format("  {} {};\n", type, name);
  }
  std::string print_operand(std::string_view name, const AttentionOperand& operand) const {
    return fmt::format("struct {} {{\n  using stored = {};\n", name, memory_type(problem_.stored)) +
           print_size("index_t", "token_stride", operand.row_stride) +
           print_size("index_t", "stride", operand.column_stride) +
           fmt::format("  static constexpr bool async = {};\n}};\n", is_async(operand));
  }
  // `problem`, with its open sizes.
  std::string print_sizes() const {
    std::string text = "  Problem problem;\n";
    const auto set = [&](std::string_view name, const Dim& size) {
      if (!size.is_constant())
        text += fmt::format("  problem.{} = static_cast<decltype(Problem::{})>({});\n", name, name,
                            size);
    };
    set("rows", problem_.rows);
    set("keys", problem_.keys);
    set("reach", problem_.reach.value_or(0));
    for (const auto& [name, operand] :
         {std::pair{"query", &problem_.query}, std::pair{"key", &problem_.key},
          std::pair{"value", &problem_.value}}) {
      if (!operand->row_stride.is_constant())
        text += fmt::format("  problem.{}.token_stride = {};\n", name, operand->row_stride);
      if (!operand->column_stride.is_constant())
        text += fmt::format("  problem.{}.stride = {};\n", name, operand->column_stride);
    }
    return text;
  }

  std::string print_problem() const {
    const int64_t bytes = size_of(problem_.stored);
    return print_operand("Query", problem_.query) + print_operand("Key", problem_.key) +
           print_operand("Value", problem_.value) +
           fmt::format(
               "struct Problem {{\n"
               "  static constexpr int depth = {}, columns = {};\n"
               "  static constexpr bool has_reach = {}, has_within = {};\n"
               "  static constexpr bool normalised = {}, guarded = {};\n"
               "  static constexpr bool whole_rows = {}, whole_keys = {};\n",
               problem_.depth, problem_.columns, problem_.reach.has_value(), has_within(),
               problem_.pattern.normalised, problem_.pattern.guarded,
               is_multiple(problem_.rows, rows()), is_multiple(problem_.keys, schedule_.keys)) +
           print_size("int", "rows", problem_.rows) + print_size("int", "keys", problem_.keys) +
           print_size("int", "reach", problem_.reach.value_or(0)) +
           "  Query query;\n  Key key;\n  Value value;\n};\n" +
           fmt::format(
               "struct Tiling {{\n"
               "  static constexpr int warps = {}, keys = {}, stages = {};\n"
               "  static constexpr int depth = {}, columns = {};\n}};\n",
               schedule_.warps, schedule_.keys, schedule_.stages, shared_row(problem_.depth, bytes),
               shared_row(problem_.columns, bytes));
  }

  std::string print_pointer(std::string_view name, const AttentionOperand& operand) const {
    std::string offset = long_text(operand.offset);
    for (size_t axis = 0; axis < problem_.batch.size(); ++axis)
      if (!operand.batch_strides[axis].is(0))
        offset += fmt::format(" + batch{} * {}", axis, long_text(operand.batch_strides[axis]));
    return fmt::format("  const auto* {} = in{} + ({});\n", name, operand.input, offset);
  }

  // [batch..., row, column].
  std::vector<Index> place(const Dim& width) const {
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
                          coordinate_text("batch", problem_.batch, axis));
    text += print_sizes();
    text += print_pointer("query", problem_.query) + print_pointer("key", problem_.key) +
            print_pointer("value", problem_.value);
    text += print_score("scores", problem_.pattern.scores);
    text += print_score("within", has_within() ? problem_.scores_within : problem_.pattern.scores);
    text += print_epilogue();
    return text +
           fmt::format(
               "  attend<{}>(problem, query, key, value, first_row, shared_memory(), scores, "
               "within, store_result);\n",
               core());
  }

  const Graph& graph_;
  const CudaAttentionSchedule schedule_;
  const AttentionProblem problem_;
  const int lanes_;
  const std::string row_blocks_;
};

}  // namespace

Result<Source> print_cuda_attention(const Graph& graph, const CudaAttentionSchedule& schedule) {
  return CudaAttentionKernel(graph, schedule).print();
}

}  // namespace kiln
