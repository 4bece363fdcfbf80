// Rewriting a graph into a fresh builder: what every pass shares. Graphs are immutable, so a pass
// walks the old nodes, operands first, and emits what should stand for each. One owner, one thread.
#pragma once

#include <utility>
#include <vector>

#include "compiler_core/ir/builder.h"

namespace kiln {

struct Rewrite {
  explicit Rewrite(const Graph& graph);  // declares the graph's symbols and inputs in the builder

  // The new nodes that stand for `node`'s operands. REQUIRES: they were emitted.
  std::vector<NodeId> operands(const Node& node) const;
  NodeId& operator[](NodeId old) { return map[static_cast<size_t>(old)]; }
  Result<Graph> finish();

  const Graph& graph;
  GraphBuilder builder;
  std::vector<NodeId> map;  // old node -> new node; kInvalidNode until emitted
};

// Which nodes an output needs.
std::vector<bool> live_nodes(const Graph& graph);

// Which nodes are outputs.
std::vector<bool> outputs_of(const Graph& graph);

// Whether the outputs of both are computed by the same nodes from the same inputs, in whatever
// order the nodes stand. Nodes that no output needs do not count.
bool equal_up_to_order(const Graph& a, const Graph& b);

// One node for all that compute the same of the same, whatever the order of commutative operands.
Result<Graph> share_equal_nodes(const Graph& graph);

// Emits `node` with these operands as it stands; a View is composed with its operand.
NodeId emit(GraphBuilder& builder, const Node& node, std::vector<NodeId> operands);

// A copy of `graph` in which `rule(builder, node, operands)` says what stands for each live node
// but the inputs.
template <class Rule>
Result<Graph> rewrite_nodes(const Graph& graph, Rule rule) {
  Rewrite rewrite(graph);
  const std::vector<bool> live = live_nodes(graph);
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (!live[static_cast<size_t>(id)] || node.op == Op::kInput) continue;
    rewrite.builder.set_origin(graph.origin_of(id));
    rewrite[id] = rule(rewrite.builder, node, rewrite.operands(node));
    if (rewrite[id] == kInvalidNode) break;  // the builder keeps the reason
  }
  return rewrite.finish();
}

// A copy of `graph` in which each live node but the inputs is what `rule(rewrite, id)` makes of it; where that
// is kInvalidNode, it is emitted as it stands.
template <class Rule>
Result<Graph> replace_where(const Graph& graph, Rule rule) {
  Rewrite rewrite(graph);
  const std::vector<bool> live = live_nodes(graph);
  for (NodeId id = 0; id < graph.size() && rewrite.builder.ok(); ++id) {
    const Node& node = graph.node(id);
    if (!live[static_cast<size_t>(id)] || node.op == Op::kInput) continue;
    rewrite.builder.set_origin(graph.origin_of(id));
    const NodeId made = rule(rewrite, id);
    rewrite[id] = made != kInvalidNode ? made : emit(rewrite.builder, node, rewrite.operands(node));
  }
  return rewrite.finish();
}

// A copy of `graph` in which each live node is emitted as it stands, or, where `instead_of(id)` names
// another node, is what `rule(builder, id, new)` makes of the new node for that one. The other node may
// come later in `graph`. REQUIRES: nodes named do not depend on the nodes they stand for.
template <class InsteadOf, class Rule>
Result<Graph> replace_nodes(const Graph& graph, InsteadOf instead_of, Rule rule) {
  Rewrite rewrite(graph);
  const std::vector<bool> live = live_nodes(graph);
  for (NodeId root = 0; root < graph.size(); ++root) {
    if (!live[static_cast<size_t>(root)]) continue;
    std::vector<NodeId> stack = {root};
    while (!stack.empty() && rewrite.builder.ok()) {
      const NodeId id = stack.back();
      const Node& node = graph.node(id);
      const NodeId instead = instead_of(id);
      const size_t before = stack.size();
      if (instead != kInvalidNode && rewrite[instead] == kInvalidNode) stack.push_back(instead);
      for (const NodeId operand : node.operands)
        if (instead == kInvalidNode && rewrite[operand] == kInvalidNode) stack.push_back(operand);
      if (stack.size() != before) continue;
      stack.pop_back();
      if (rewrite[id] != kInvalidNode) continue;
      rewrite.builder.set_origin(graph.origin_of(id));
      rewrite[id] = instead == kInvalidNode ? emit(rewrite.builder, node, rewrite.operands(node))
                                            : rule(rewrite.builder, id, rewrite[instead]);
    }
  }
  return rewrite.finish();
}

}  // namespace kiln
