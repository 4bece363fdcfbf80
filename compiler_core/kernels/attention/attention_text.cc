#include "compiler_core/kernels/attention/attention_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "compiler_core/kernels/printing/coordinates.h"
#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

// A size that is known at run time only becomes a member, a constant one a constexpr.
std::string print_size(std::string_view type, std::string_view name, const Dim& size) {
  return size.is_constant()
             ? fmt::format("  static constexpr {} {} = {};\n", type, name, size.constant())
             : fmt::format("  {} {};\n", type, name);
}

// Neighbours that a vector has: what a lane of the tensor cores holds of a row, or, where keys or values are
// computed, a chunk of shared memory.
int lanes_of(const AttentionProblem& problem) {
  if (problem.computes_operands()) return static_cast<int>(16 / size_of(problem.stored));
  return is_multiple(problem.keys, 2) && problem.columns % 2 == 0 ? 2 : 1;
}

}  // namespace

std::string statements(ExpressionPrinter& printer) {
  const std::string kernel = printer.take(Level::kKernel, 4);
  const std::string outer = printer.take(Level::kOuter, 4);
  return kernel + outer + printer.take(Level::kInner, 4);
}

std::string print_batch_coordinates(const std::vector<Dim>& batch) {
  std::string text;
  for (size_t axis = 0; axis < batch.size(); ++axis)
    text += fmt::format("  [[maybe_unused]] const index_t batch{} = {};\n", axis,
                        coordinate_text("batch", batch, axis));
  return text;
}

AttentionText::AttentionText(const Graph& graph, AttentionProblem problem, int64_t rows,
                             int64_t keys)
    : graph_(graph),
      rows_(rows),
      keys_(keys),
      problem_(std::move(problem)),
      lanes_(lanes_of(problem_)),
      row_blocks_(ceil_text(problem_.rows, rows)) {}

// Whether rows of a head come in aligned chunks of 16 bytes.
bool AttentionText::is_async(const AttentionOperand& operand) const {
  if (operand.computed != kInvalidNode) return computed(operand).has_address();
  const int64_t chunk = 16 / size_of(problem_.stored);
  return operand.column_stride.is(1) && is_multiple(operand.offset, chunk) &&
         is_multiple(operand.row_stride, chunk) &&
         std::all_of(operand.batch_strides.begin(), operand.batch_strides.end(),
                     [&](const Dim& stride) { return is_multiple(stride, chunk); });
}

std::string AttentionText::print_operand(std::string_view name,
                                         const AttentionOperand& operand) const {
  return fmt::format("struct {} {{\n  using stored = {};\n", name, memory_type(problem_.stored)) +
         print_size("index_t", "token_stride", operand.row_stride) +
         print_size("index_t", "stride", operand.column_stride) +
         fmt::format("  static constexpr bool async = {}, addressed = {}, computed = {};\n}};\n",
                     is_async(operand), operand.computed != kInvalidNode && is_async(operand),
                     operand.computed != kInvalidNode && !is_async(operand));
}
std::string AttentionText::print_sizes() const {
  std::string text = "  Problem problem;\n";
  const auto set = [&](std::string_view name, const Dim& size) {
    if (!size.is_constant())
      text +=
          fmt::format("  problem.{} = static_cast<decltype(Problem::{})>({});\n", name, name, size);
  };
  set("rows", problem_.rows);
  set("keys", problem_.keys);
  set("reach", problem_.mask.reach.value_or(0));
  set("past", problem_.mask.past.value_or(0));
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

std::string AttentionText::print_problem() const {
  return print_operand("Query", problem_.query) + print_operand("Key", problem_.key) +
         print_operand("Value", problem_.value) +
         fmt::format(
             "struct Problem {{\n"
             "  static constexpr int depth = {}, columns = {};\n"
             "  static constexpr bool has_reach = {}, has_past = {}, has_within = {};\n"
             "  static constexpr bool normalised = {}, guarded = {}, has_log_sums = {};\n"
             "  static constexpr bool whole_rows = {}, whole_keys = {};\n"
             "  static constexpr int score_lanes = {};\n",
             problem_.depth, problem_.columns, problem_.mask.reach.has_value(),
             problem_.mask.past.has_value(), has_within(), problem_.pattern.normalised,
             problem_.pattern.guarded, problem_.outputs.log_sums >= 0,
             is_multiple(problem_.rows, rows_), is_multiple(problem_.keys, keys_), score_lanes()) +
         print_size("int", "rows", problem_.rows) + print_size("int", "keys", problem_.keys) +
         print_size("int", "reach", problem_.mask.reach.value_or(0)) +
         print_size("int", "past", problem_.mask.past.value_or(0)) +
         "  Query query;\n  Key key;\n  Value value;\n};\n";
}

std::string AttentionText::print_pointer(std::string_view name,
                                         const AttentionOperand& operand) const {
  if (operand.computed != kInvalidNode) return computed(operand).print(name);
  std::string offset = long_text(operand.offset);
  for (size_t axis = 0; axis < problem_.batch.size(); ++axis)
    if (!operand.batch_strides[axis].is(0))
      offset += fmt::format(" + batch{} * {}", axis, long_text(operand.batch_strides[axis]));
  return fmt::format("  const auto* {} = in{} + ({});\n", name, operand.input, offset);
}

// At [batch..., token, column], or, of a key, [batch..., column, token].
ComputedOperandText AttentionText::computed(const AttentionOperand& operand) const {
  const bool is_key = &operand == &problem_.key;
  const LoopVar token{"token", LoopVar::Kind::kScalar, Level::kInner, 0, problem_.keys};
  const LoopVar column{"column",
                       LoopVar::Kind::kVector,
                       Level::kInner,
                       0,
                       is_key ? problem_.depth : problem_.columns,
                       lanes_};
  std::vector<Index> at;
  for (size_t axis = 0; axis < problem_.batch.size(); ++axis)
    at.push_back(static_cast<int>(axis) == problem_.heads_axis ? Index(0) : batch_index(axis));
  at.emplace_back(is_key ? column : token);
  at.emplace_back(is_key ? token : column);
  return {graph_, operand.computed, std::move(at), lanes_};
}

std::string AttentionText::print_pointers() const {
  return print_pointer("query", problem_.query) + print_pointer("key", problem_.key) +
         print_pointer("value", problem_.value);
}

bool AttentionText::scores_read() const {
  std::vector<NodeId> left = {problem_.pattern.scores};
  while (!left.empty()) {
    const NodeId id = left.back();
    left.pop_back();
    if (id == problem_.pattern.query_key) continue;
    const Node& node = graph_.node(id);
    if (node.op == Op::kInput) return true;
    left.insert(left.end(), node.operands.begin(), node.operands.end());
  }
  return false;
}

std::string AttentionText::print_scores(NodeId sums) const {
  return print_score("scores", problem_.pattern.scores, sums) +
         print_score("within", has_within() ? problem_.mask.within : problem_.pattern.scores, sums);
}

Index AttentionText::batch_index(size_t axis) const {
  return LoopVar{fmt::format("batch{}", axis), LoopVar::Kind::kScalar, Level::kKernel, 0,
                 problem_.batch[axis]};
}

// [batch..., row, column].
std::vector<Index> AttentionText::place(const Dim& width, int lanes) const {
  const LoopVar row{"row", LoopVar::Kind::kScalar, Level::kOuter, 0, problem_.rows};
  const auto is_row = [&](size_t axis) { return static_cast<int>(axis) == problem_.heads_axis; };
  std::vector<Index> at;
  for (size_t axis = 0; axis < problem_.batch.size(); ++axis)
    at.push_back(is_row(axis) ? Index(row) : batch_index(axis));
  at.push_back(problem_.heads_axis >= 0 ? Index(0) : row);
  const auto kind = lanes == lanes_ ? LoopVar::Kind::kVector : LoopVar::Kind::kScalar;
  at.push_back(LoopVar{"column", kind, Level::kInner, 0, width, lanes});
  return at;
}

std::string AttentionText::print_score(std::string_view name, NodeId scores, NodeId sums) const {
  ExpressionPrinter printer(graph_, Dialect::kCuda);
  printer.bind(sums, {"sums", Level::kInner});
  const std::string result = printer.value(scores, place(problem_.keys, score_lanes())).name;
  return fmt::format(
      "  const auto {} = [&](vf32 sums, index_t row, index_t column) {{\n"
      "    [[maybe_unused]] const AllLanes live{{}};\n{}    return {};\n  }};\n",
      name, statements(printer), result);
}

std::string AttentionText::print_store() const {
  ExpressionPrinter printer(graph_, Dialect::kCuda);
  printer.bind(problem_.result, {"value", Level::kInner});
  if (problem_.sum_view != kInvalidNode) printer.bind(problem_.sum_view, {"sum", Level::kInner});
  const std::vector<Index> product = place(problem_.columns, lanes_);
  std::vector<Index> at;
  for (int axis : problem_.result_axes) at.push_back(product[static_cast<size_t>(axis)]);
  printer.store(problem_.outputs.result, at);
  return fmt::format(
      "  const auto store_result = [&](vf32 value, vf32 sum, index_t row, index_t column) {{\n"
      "    const AllLanes live{{}};\n{}  }};\n",
      statements(printer));
}

std::string AttentionText::print_store_log_sum() const {
  std::string stores;
  if (problem_.outputs.log_sums >= 0) {
    ExpressionPrinter printer(graph_, Dialect::kCuda);
    printer.bind(problem_.pattern.log_sums, {"log_sum", Level::kInner, true});
    std::vector<Index> at = place(problem_.columns, lanes_);
    at.pop_back();
    const NodeId wanted = graph_.outputs()[static_cast<size_t>(problem_.outputs.log_sums)];
    if (graph_.node(wanted).shape.size() > at.size()) at.emplace_back(0);  // an axis of size 1
    printer.store_one(problem_.outputs.log_sums, at);
    stores = statements(printer);
  }
  return fmt::format(
      "  const auto store_log_sum = [&]([[maybe_unused]] vf32 log_sum, "
      "[[maybe_unused]] index_t row) {{\n{}  }};\n",
      stores);
}

}  // namespace kiln
