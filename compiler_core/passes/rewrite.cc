#include "compiler_core/passes/rewrite.h"

namespace kiln {

Rewrite::Rewrite(const Graph& old)
    : graph(old), map(static_cast<size_t>(old.size()), kInvalidNode) {
  builder.carry_origins(graph);
  for (const Symbol& symbol : graph.symbols()) builder.symbol(symbol.range, symbol.hint);
  for (NodeId id : graph.inputs()) {
    const Node& node = graph.node(id);
    map[static_cast<size_t>(id)] = builder.input(node.dtype, node.shape);
  }
}

std::vector<NodeId> Rewrite::operands(const Node& node) const {
  std::vector<NodeId> ids;
  ids.reserve(node.operands.size());
  for (NodeId operand : node.operands) ids.push_back(map[static_cast<size_t>(operand)]);
  return ids;
}

Result<Graph> Rewrite::finish() {
  std::vector<NodeId> outputs;
  for (NodeId id : graph.outputs()) outputs.push_back(map[static_cast<size_t>(id)]);
  return builder.finish(std::move(outputs));
}

std::vector<bool> live_nodes(const Graph& graph) {
  std::vector<bool> live(static_cast<size_t>(graph.size()), false);
  for (NodeId id : graph.outputs()) live[static_cast<size_t>(id)] = true;
  for (NodeId id = graph.size(); id-- > 0;)
    if (live[static_cast<size_t>(id)])
      for (NodeId operand : graph.node(id).operands) live[static_cast<size_t>(operand)] = true;
  return live;
}

NodeId emit(GraphBuilder& builder, const Node& node, std::vector<NodeId> operands) {
  if (node.op == Op::kView) {
    const auto& view = std::get<ViewAttr>(node.attr);
    return builder.view(operands[0], node.shape, view.strides, view.offset);
  }
  return builder.add({node.op, node.dtype, node.shape, std::move(operands), node.attr});
}

}  // namespace kiln
