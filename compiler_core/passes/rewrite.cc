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

// Equal for equal nodes, in whatever order a commutative op's operands stand; rarely equal for
// others whose sizes are known.
size_t hash_of(const Node& node) {
  size_t hash = static_cast<size_t>(node.op);
  const auto mix = [&hash](size_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u + (hash >> 29);
  };
  const auto mix_all = [&mix](const std::vector<Dim>& dims) {
    for (const Dim& dim : dims) mix(dim.is_constant() ? static_cast<size_t>(dim.constant()) : 1);
  };
  if (traits(node.op).commutative) {
    const auto [low, high] = std::minmax(node.operands[0], node.operands[1]);
    mix(static_cast<size_t>(low));
    mix(static_cast<size_t>(high));
  } else {
    for (NodeId operand : node.operands) mix(static_cast<size_t>(operand));
  }
  mix_all(node.shape);
  if (const auto* constant = std::get_if<ConstantAttr>(&node.attr)) mix(constant->bits);
  if (const auto* philox = std::get_if<PhiloxAttr>(&node.attr))
    mix(static_cast<size_t>(philox->stream));
  if (const auto* pad = std::get_if<PadAttr>(&node.attr)) mix_all(pad->low);
  if (const auto* view = std::get_if<ViewAttr>(&node.attr)) {
    mix_all(view->strides);
    mix_all({view->offset});
  }
  return hash;
}

bool are_equal(const Node& a, const Node& b) {
  if (a.op != b.op || a.dtype != b.dtype || a.shape != b.shape || a.attr != b.attr) return false;
  return a.operands == b.operands || (traits(a.op).commutative && a.operands[0] == b.operands[1] &&
                                      a.operands[1] == b.operands[0]);
}

}  // namespace

std::vector<bool> outputs_of(const Graph& graph) {
  std::vector<bool> is_output(static_cast<size_t>(graph.size()), false);
  for (const NodeId id : graph.outputs()) is_output[static_cast<size_t>(id)] = true;
  return is_output;
}

// Maps every node of `b` to the equal one of `a`, operands first.
bool equal_up_to_order(const Graph& a, const Graph& b) {
  if (a.outputs().size() != b.outputs().size() || a.inputs().size() != b.inputs().size())
    return false;
  std::unordered_multimap<size_t, NodeId> known;
  known.reserve(a.nodes().size());
  for (NodeId id = 0; id < a.size(); ++id)
    if (a.node(id).op != Op::kInput) known.emplace(hash_of(a.node(id)), id);
  const std::vector<bool> live = live_nodes(b);
  std::vector<NodeId> match(static_cast<size_t>(b.size()), kInvalidNode);
  for (size_t i = 0; i < a.inputs().size(); ++i) {
    if (!are_equal(a.node(a.inputs()[i]), b.node(b.inputs()[i]))) return false;
    match[static_cast<size_t>(b.inputs()[i])] = a.inputs()[i];
  }
  for (NodeId id = 0; id < b.size(); ++id) {
    if (!live[static_cast<size_t>(id)] || b.node(id).op == Op::kInput) continue;
    Node node = b.node(id);
    for (NodeId& operand : node.operands) operand = match[static_cast<size_t>(operand)];
    const auto [begin, end] = known.equal_range(hash_of(node));
    const auto found = std::find_if(
        begin, end, [&](const auto& entry) { return are_equal(a.node(entry.second), node); });
    if (found == end) return false;
    match[static_cast<size_t>(id)] = found->second;
  }
  for (size_t i = 0; i < a.outputs().size(); ++i)
    if (match[static_cast<size_t>(b.outputs()[i])] != a.outputs()[i]) return false;
  return true;
}

Result<Graph> share_equal_nodes(const Graph& graph) {
  std::unordered_multimap<size_t, NodeId> known;
  return rewrite_nodes(graph, [&](GraphBuilder& b, const Node& node, std::vector<NodeId> operands) {
    Node wanted = node;
    wanted.operands = std::move(operands);
    const size_t hash = hash_of(wanted);
    const auto [begin, end] = known.equal_range(hash);
    const auto found = std::find_if(
        begin, end, [&](const auto& entry) { return are_equal(b.node(entry.second), wanted); });
    if (found != end) return found->second;
    const NodeId made = b.add(std::move(wanted));
    known.emplace(hash, made);
    return made;
  });
}

NodeId emit(GraphBuilder& builder, const Node& node, std::vector<NodeId> operands) {
  if (node.op == Op::kView) {
    const auto& view = std::get<ViewAttr>(node.attr);
    return builder.view(operands[0], node.shape, view.strides, view.offset);
  }
  return builder.add({node.op, node.dtype, node.shape, std::move(operands), node.attr});
}

}  // namespace kiln
