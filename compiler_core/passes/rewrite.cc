#include "compiler_core/passes/rewrite.h"

#include <algorithm>
#include <unordered_map>

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

namespace {

// Equal for equal nodes; hardly ever for others, whose sizes are known.
size_t hash_of(const Node& node) {
  size_t hash = static_cast<size_t>(node.op);
  const auto mix = [&hash](size_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u + (hash >> 29);
  };
  const auto mix_dim = [&mix](const Dim& dim) {
    mix(dim.is_constant() ? static_cast<size_t>(dim.constant()) : 1);
  };
  for (NodeId operand : node.operands) mix(static_cast<size_t>(operand));
  for (const Dim& dim : node.shape) mix_dim(dim);
  if (const auto* constant = std::get_if<ConstantAttr>(&node.attr)) mix(constant->bits);
  if (const auto* view = std::get_if<ViewAttr>(&node.attr)) {
    for (const Dim& stride : view->strides) mix_dim(stride);
    mix_dim(view->offset);
  }
  return hash;
}

}  // namespace

// Maps every node of `b` to the one of `a` that is equal, operands first. Operands of commutative
// ops count in the order of the nodes that they are mapped to.
bool equal_up_to_order(const Graph& a, const Graph& b) {
  if (a.outputs().size() != b.outputs().size() || a.inputs().size() != b.inputs().size())
    return false;
  const auto canonical = [](Node node) {
    if (traits(node.op).commutative && node.operands[0] > node.operands[1])
      std::swap(node.operands[0], node.operands[1]);
    return node;
  };
  std::unordered_multimap<size_t, NodeId> known;
  known.reserve(a.nodes().size());
  for (NodeId id = 0; id < a.size(); ++id) known.emplace(hash_of(canonical(a.node(id))), id);
  const std::vector<bool> live = live_nodes(b);
  std::vector<NodeId> match(static_cast<size_t>(b.size()), kInvalidNode);
  for (NodeId id = 0; id < b.size(); ++id) {
    if (!live[static_cast<size_t>(id)]) continue;
    Node node = b.node(id);
    for (NodeId& operand : node.operands) operand = match[static_cast<size_t>(operand)];
    node = canonical(std::move(node));
    const auto [begin, end] = known.equal_range(hash_of(node));
    const auto found = std::find_if(
        begin, end, [&](const auto& entry) { return canonical(a.node(entry.second)) == node; });
    if (found == end) return false;
    match[static_cast<size_t>(id)] = found->second;
  }
  for (size_t i = 0; i < a.outputs().size(); ++i)
    if (match[static_cast<size_t>(b.outputs()[i])] != a.outputs()[i]) return false;
  return true;
}

NodeId emit(GraphBuilder& builder, const Node& node, std::vector<NodeId> operands) {
  if (node.op == Op::kView) {
    const auto& view = std::get<ViewAttr>(node.attr);
    return builder.view(operands[0], node.shape, view.strides, view.offset);
  }
  return builder.add({node.op, node.dtype, node.shape, std::move(operands), node.attr});
}

}  // namespace kiln
