#include "compiler_core/kernels/attention/computed_operand_text.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/kernels/attention/attention_text.h"
#include "compiler_core/plan/sizes.h"

namespace kiln {

std::string ComputedOperandText::print(std::string_view name) const {
  const auto body = address();
  if (!body) return print_computed(name);
  return fmt::format("  const auto {} = [&](index_t token, index_t column) {{\n{}  }};\n", name,
                     *body);
}

std::optional<std::string> ComputedOperandText::address() const {
  ExpressionPrinter printer(graph_, Dialect::kCuda);
  printer.whole_vectors(lanes_);
  const auto text = printer.vector_address(operand_, at_, lanes_);
  if (!text) return std::nullopt;
  return fmt::format("{}    return {};\n", statements(printer), *text);
}

std::string ComputedOperandText::print_computed(std::string_view name) const {
  ExpressionPrinter loads(graph_, Dialect::kCuda), values(graph_, Dialect::kCuda);
  loads.whole_vectors(lanes_);
  values.whole_vectors(lanes_);
  std::string type = "int", declaration = "int raw = 0;";
  if (const auto read = widest_read(loads)) {
    type = fmt::format("Packed<{}>", memory_type(graph_.node(read->node).dtype));
    declaration = type + " raw;";
    loads.load_packed(read->node, read->at, "raw", false);
    values.bind_packed(read->node, "raw");
  }
  const std::string value = values.value(operand_, at_).name;
  constexpr std::string_view kLive = "    [[maybe_unused]] const AllLanes live{};\n";
  return fmt::format(
      "  const auto read_{0} = [&](index_t token, index_t column) {{\n{1}    {2}\n{3}"
      "    return raw;\n  }};\n"
      "  const auto value_of_{0} = [&]([[maybe_unused]] const {4}& raw, index_t token, index_t "
      "column) {{\n{1}{5}"
      "    return {6};\n  }};\n"
      "  const Computed {0}{{read_{0}, value_of_{0}}};\n",
      name, kLive, declaration, statements(loads), type, statements(values), value);
}

// Arithmetic computes the operand from several values. The one with the largest input below it is loaded
// ahead of the others: an input, a View of one, or a Gather. Nothing where two Views of what is computed read
// that value, since one load has one index.
std::optional<ComputedOperandText::Read> ComputedOperandText::widest_read(
    ExpressionPrinter& printer) const {
  Read read{operand_, at_};
  bool is_read_once = true, is_behind_view = false;
  while (true) {
    const Node& node = graph_.node(read.node);
    NodeId below = read.node;
    while (graph_.node(below).op == Op::kView) below = graph_.node(below).operands[0];
    is_read_once = is_read_once && (read.node == operand_ || readers(read.node) == 1);
    if (is_elementwise(node.op)) {
      read.node = *std::ranges::max_element(node.operands, {},
                                            [this](NodeId id) { return bytes_below(id); });
    } else if (is_elementwise(graph_.node(below).op)) {
      read = {node.operands[0], printer.viewed(node, read.at)};
      is_behind_view = true;
    } else {
      const Op op = graph_.node(below).op;
      const bool is_loaded = op == Op::kInput || traits(op).kind != OpKind::kSource;
      if (!is_loaded || (is_behind_view && !is_read_once)) return std::nullopt;
      return read;
    }
  }
}

// The size of the largest input that `id` is computed from.
double ComputedOperandText::bytes_below(NodeId id) const {
  const Node& node = graph_.node(id);
  if (node.op == Op::kInput)
    return static_cast<double>(size_at_hints(graph_, numel(node.shape))) *
           static_cast<double>(size_of(node.dtype));
  double most = 0;
  for (const NodeId operand : node.operands) most = std::max(most, bytes_below(operand));
  return most;
}

int64_t ComputedOperandText::readers(NodeId id) const {
  return std::ranges::count_if(graph_.nodes(), [&](const Node& node) {
    return std::ranges::find(node.operands, id) != node.operands.end();
  });
}

}  // namespace kiln
