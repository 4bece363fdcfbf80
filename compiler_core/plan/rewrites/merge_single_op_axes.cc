#include "compiler_core/plan/rewrites/kernel_rewrites.h"

#include <optional>

#include "compiler_core/passes/rewrite.h"

namespace kiln {
namespace {

Dim product(const Shape& shape, size_t begin, size_t end) {
  Dim size = 1;
  for (size_t i = begin; i < end; ++i) size = size * shape[i];
  return size;
}

// The shape of each operand with its axes merged.
std::optional<std::vector<Shape>> operand_shapes(const Graph& graph, const Node& node) {
  const Shape& x = graph.node(node.operands[0]).shape;
  switch (traits(node.op).kind) {
    case OpKind::kScan: {
      const auto axis = static_cast<size_t>(std::get<AxisAttr>(node.attr).axis);
      return {{{product(x, 0, axis), x[axis], product(x, axis + 1, x.size())}}};
    }
    case OpKind::kSort:
      return {{{product(x, 0, x.size() - 1), x.back()}}};
    case OpKind::kScatter: {
      const Dim row = product(x, 1, x.size()), count = numel(graph.node(node.operands[1]).shape);
      return {{{x[0], row}, {count}, {count, row}}};
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

Result<Graph> merge_single_op_axes(const Graph& graph) {
  const NodeId id = graph.outputs()[0];
  const Node& node = graph.node(id);
  if (graph.outputs().size() != 1 || !stands_alone(node.op)) return graph;
  const auto shapes = operand_shapes(graph, node);
  if (!shapes) return graph;
  std::vector<std::optional<Shape>> declared(graph.inputs().size());
  for (size_t i = 0; i < node.operands.size(); ++i) {
    const Node& operand = graph.node(node.operands[i]);
    if (operand.op != Op::kInput) return graph;
    auto& shape = declared[static_cast<size_t>(std::get<InputAttr>(operand.attr).index)];
    if (shape && *shape != (*shapes)[i]) return graph;  // one buffer in two parts
    shape = (*shapes)[i];
  }
  GraphBuilder builder;
  builder.carry_origins(graph);
  for (const Symbol& symbol : graph.symbols()) builder.symbol(symbol.range, symbol.hint);
  std::vector<NodeId> inputs, operands;
  for (size_t i = 0; i < declared.size(); ++i) {
    const Node& input = graph.node(graph.inputs()[i]);
    inputs.push_back(builder.input(input.dtype, declared[i].value_or(input.shape)));
  }
  for (NodeId operand : node.operands)
    operands.push_back(
        inputs[static_cast<size_t>(std::get<InputAttr>(graph.node(operand).attr).index)]);
  builder.set_origin(graph.origin_of(id));
  Node merged = node;
  merged.shape = shapes->front();
  if (auto* axis = std::get_if<AxisAttr>(&merged.attr)) axis->axis = 1;
  const NodeId result = emit(builder, merged, std::move(operands));
  return builder.finish({result});
}

}  // namespace kiln
