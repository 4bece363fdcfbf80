#include <algorithm>
#include <map>

#include "compiler_core/ir/affine.h"
#include "compiler_core/passes/rewrite.h"
#include "compiler_core/plan/rewrites/graph_rewrites.h"

namespace kiln {
namespace {

Shape turned(Shape shape) {
  std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
  return shape;
}

// What computes a value: equal for values that are equal.
struct Computation {
  Op op;
  DType dtype;
  Shape shape;
  std::vector<Dim> strides;  // of a View
  Dim offset = 0;            // of a View
  std::vector<NodeId> operands;
  auto operator<=>(const Computation&) const = default;
};

// Finds the pairs of values of which one is the other with its last two axes exchanged.
class Twins {
 public:
  explicit Twins(const Graph& graph)
      : graph_(graph),
        twin_(static_cast<size_t>(graph.size()), kInvalidNode),
        is_across_(static_cast<size_t>(graph.size()), false) {
    const std::vector<bool> live = live_nodes(graph);
    for (NodeId id = 0; id < graph.size(); ++id)
      if (live[static_cast<size_t>(id)]) visit(id);
  }

  // What `id` is the transpose of and need not be computed for; kInvalidNode: nothing.
  NodeId instead_of(NodeId id) const {
    const NodeId twin = twin_[static_cast<size_t>(id)];
    if (twin == kInvalidNode || twin == id || !is_elementwise(graph_.node(id).op))
      return kInvalidNode;
    const bool across = is_across_[static_cast<size_t>(id)];
    const bool keeps = across == is_across_[static_cast<size_t>(twin)] ? id < twin : !across;
    return keeps ? kInvalidNode : twin;
  }

 private:
  void visit(NodeId id) {
    const Node& node = graph_.node(id);
    if (node.shape.size() < 2 || !(is_elementwise(node.op) || node.op == Op::kView)) return;
    Computation own{node.op, node.dtype, node.shape, {}, 0, node.operands};
    Computation other = own;
    other.shape = turned(node.shape);
    if (node.op == Op::kView) {
      const auto& view = std::get<ViewAttr>(node.attr);
      own.strides = other.strides = view.strides;
      own.offset = other.offset = view.offset;
      std::swap(other.strides[other.strides.size() - 1], other.strides[other.strides.size() - 2]);
      is_across_[static_cast<size_t>(id)] =
          !view.strides.back().is(1) && !view.strides.back().is(0);
    } else {
      for (NodeId& operand : other.operands) {
        const auto at = static_cast<size_t>(operand);
        if (is_across_[at]) is_across_[static_cast<size_t>(id)] = true;
        operand = twin_of(operand);
        if (operand == kInvalidNode) other.operands.clear();
        if (other.operands.empty()) break;
      }
    }
    if (traits(node.op).commutative) {
      std::ranges::sort(own.operands);
      std::ranges::sort(other.operands);
    }
    known_.emplace(own, id);
    if (other.operands.empty()) return;
    const NodeId found = find(other);
    if (found == kInvalidNode) return;
    twin_[static_cast<size_t>(id)] = found;
    NodeId& of_found = twin_[static_cast<size_t>(found)];
    if (of_found == kInvalidNode) of_found = id;
  }

  NodeId find(const Computation& wanted) const {
    // A View that reads its operand as it stands is none.
    if (wanted.op == Op::kView) {
      const Node& source = graph_.node(wanted.operands[0]);
      if (is_identity_view(source.shape, wanted.shape, {wanted.strides, wanted.offset}))
        return wanted.operands[0];
    }
    const auto found = known_.find(wanted);
    return found == known_.end() ? kInvalidNode : found->second;
  }
  NodeId twin_of(NodeId id) const { return twin_[static_cast<size_t>(id)]; }

  const Graph& graph_;
  std::vector<NodeId> twin_;
  std::vector<bool> is_across_;  // reads something across the order in which it lies
  std::map<Computation, NodeId> known_;
};

NodeId transposed(GraphBuilder& b, NodeId x, const Shape& shape) {
  std::vector<Dim> strides = contiguous_strides(b.shape(x));
  std::swap(strides[strides.size() - 1], strides[strides.size() - 2]);
  return b.view(x, shape, std::move(strides), 0);
}

}  // namespace

Result<Graph> share_transposes(const Graph& graph) {
  const Twins twins(graph);
  Rewrite rewrite(graph);
  const std::vector<bool> live = live_nodes(graph);
  for (NodeId root = 0; root < graph.size(); ++root) {
    if (!live[static_cast<size_t>(root)]) continue;
    // What stands for a value may come behind it.
    std::vector<NodeId> stack = {root};
    while (!stack.empty() && rewrite.builder.ok()) {
      const NodeId id = stack.back();
      const Node& node = graph.node(id);
      const NodeId instead = twins.instead_of(id);
      const size_t before = stack.size();
      if (instead != kInvalidNode && rewrite[instead] == kInvalidNode) stack.push_back(instead);
      for (const NodeId operand : node.operands)
        if (instead == kInvalidNode && rewrite[operand] == kInvalidNode) stack.push_back(operand);
      if (stack.size() != before) continue;
      stack.pop_back();
      if (rewrite[id] != kInvalidNode) continue;
      rewrite.builder.set_origin(graph.origin_of(id));
      rewrite[id] = instead == kInvalidNode
                        ? emit(rewrite.builder, node, rewrite.operands(node))
                        : transposed(rewrite.builder, rewrite[instead], node.shape);
    }
  }
  return rewrite.finish();
}

}  // namespace kiln
