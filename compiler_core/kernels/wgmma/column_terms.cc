#include "compiler_core/kernels/wgmma/column_terms.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler_core/kernels/printing/expression.h"

namespace kiln {
namespace {

enum class Dependence : uint8_t { kNothing, kColumn, kMore };

// What decides which element a View reads.
Dependence dependence_of(const Node& view) {
  const std::vector<Dim>& strides = std::get<ViewAttr>(view.attr).strides;
  const auto moves = [](const Dim& stride) { return !stride.is(0); };
  if (std::ranges::none_of(strides, moves)) return Dependence::kNothing;
  return std::any_of(strides.begin(), strides.end() - 1, moves) ? Dependence::kMore
                                                                : Dependence::kColumn;
}

// Whether Views, casts and arithmetic alone lead from inputs to the value.
std::vector<bool> known_before(const Graph& graph) {
  std::vector<bool> known(graph.size());
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    known[id] = node.op == Op::kInput || node.op == Op::kConstant ||
                ((node.op == Op::kView || is_elementwise(node.op)) &&
                 std::ranges::all_of(node.operands, [&](NodeId x) { return known[x]; }));
  }
  return known;
}

// What each value of `product`'s shape depends on.
std::vector<Dependence> dependences(const Graph& graph, NodeId product) {
  const Shape& shape = graph.node(product).shape;
  const std::vector<bool> known = known_before(graph);
  std::vector<Dependence> found(graph.size(), Dependence::kMore);
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (id == product || !known[id]) continue;
    if (node.op == Op::kConstant) {
      found[id] = Dependence::kNothing;
    } else if (node.op == Op::kView) {
      if (node.shape == shape) found[id] = dependence_of(node);
    } else if (is_elementwise(node.op)) {
      found[id] = Dependence::kNothing;
      for (const NodeId x : node.operands) found[id] = std::max(found[id], found[x]);
    }
  }
  return found;
}

// Whether a value is more than loads and conversions.
std::vector<bool> computed(const Graph& graph) {
  std::vector<bool> found(graph.size());
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    found[id] = (is_elementwise(node.op) && node.op != Op::kCast) ||
                std::ranges::any_of(node.operands, [&](NodeId x) { return found[x]; });
  }
  return found;
}

}  // namespace

std::vector<NodeId> column_terms(const Graph& graph, NodeId product) {
  const Shape& shape = graph.node(product).shape;
  const std::vector<Dependence> dependence = dependences(graph, product);
  const std::vector<bool> computes = computed(graph);
  // A View may read a value at other columns than its own: that value is computed where it is read.
  std::vector<bool> is_read(graph.size()), is_viewed(graph.size());
  for (NodeId id = 0; id < graph.size(); ++id)
    for (const NodeId x : graph.node(id).operands) {
      const bool here = is_elementwise(graph.node(id).op) && graph.node(id).shape == shape;
      if (!here) is_viewed[x] = true;
      if (here && dependence[id] == Dependence::kMore) is_read[x] = true;
    }
  std::vector<NodeId> terms;
  bool saves = false;
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (dependence[id] != Dependence::kColumn || !is_read[id] || is_viewed[id]) continue;
    const DType dtype = graph.node(id).dtype;
    if (dtype != DType::kF32 && !is_16_bit_float(dtype)) return {};
    saves = saves || computes[id];
    terms.push_back(id);
  }
  return saves ? terms : std::vector<NodeId>{};
}

int64_t column_terms_bytes(std::span<const NodeId> terms, int64_t columns) {
  return static_cast<int64_t>(terms.size()) * columns * static_cast<int64_t>(sizeof(float));
}

std::string print_column_terms(const Graph& graph, std::span<const NodeId> terms) {
  const Shape& shape = graph.node(terms.front()).shape;
  ExpressionPrinter printer(graph, Dialect::kCuda);
  std::vector<Index> at;
  for (size_t axis = 0; axis + 1 < shape.size(); ++axis)
    at.push_back(LoopVar{"row", LoopVar::Kind::kScalar, Level::kOuter, 0, shape[axis]});
  at.push_back(LoopVar{"column", LoopVar::Kind::kVector, Level::kInner, 0, shape.back(), 2});
  std::vector<std::string> values;
  for (const NodeId term : terms) values.push_back(printer.value(term, at).name);
  std::string text = printer.take(Level::kKernel, 4);
  text += printer.take(Level::kOuter, 4);
  text += printer.take(Level::kInner, 4);
  return fmt::format(
      "  const auto column_terms = [&](index_t column) {{\n"
      "    [[maybe_unused]] const AllLanes live{{}};\n"
      "{}    return ColumnTerms<{}>{{{{{}}}}};\n  }};\n",
      text, terms.size(), fmt::join(values, ", "));
}

}  // namespace kiln
