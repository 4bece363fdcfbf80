#include <algorithm>
#include <map>
#include <optional>

#include "compiler_core/ir/affine.h"
#include "compiler_core/passes/rewrite.h"
#include "compiler_core/plan/rewrites/graph_rewrites.h"

namespace kiln {
namespace {

// The axes that a transpose exchanges, of a shape of `rank`; nothing where it has too few.
struct Exchange {
  size_t first, second;
};
std::optional<Exchange> exchange_of(Transpose transpose, size_t rank) {
  if (transpose == Transpose::kFirstAxes)
    return rank < 3 ? std::nullopt : std::optional(Exchange{0, 1});
  return rank < 2 ? std::nullopt : std::optional(Exchange{rank - 2, rank - 1});
}
std::vector<Dim> exchanged(std::vector<Dim> of_axes, const Exchange& axes) {
  std::swap(of_axes[axes.first], of_axes[axes.second]);
  return of_axes;
}

// What computes a value: equal for values that are equal.
struct Computation {
  Op op;
  DType dtype;
  Shape shape;
  std::vector<Dim> strides;  // of a View
  Dim offset = 0;            // of a View
  std::vector<NodeId> operands;
  auto operator<=>(const Computation&) const = default;  // NOLINT(modernize-use-nullptr)
};

// Finds the pairs of values of which one is the other transposed.
class Twins {
 public:
  Twins(const Graph& graph, Transpose transpose)
      : graph_(graph),
        transpose_(transpose),
        twin_(static_cast<size_t>(graph.size()), kInvalidNode),
        is_across_(static_cast<size_t>(graph.size()), false),
        is_multiplied_(static_cast<size_t>(graph.size()), false) {
    const std::vector<bool> live = live_nodes(graph);
    for (NodeId id = 0; id < graph.size(); ++id) {
      if (!live[static_cast<size_t>(id)]) continue;
      visit(id);
      if (traits(graph.node(id).op).kind != OpKind::kContract) continue;
      for (const NodeId operand : graph.node(id).operands) {
        is_multiplied_[static_cast<size_t>(operand)] = true;
        if (graph.node(operand).op == Op::kView)
          is_multiplied_[static_cast<size_t>(graph.node(operand).operands[0])] = true;
      }
    }
  }

  // What `id` is the transpose of and need not be computed for; kInvalidNode: nothing. Only of what
  // products read, which is stored: a norm would have to read a stored value instead of what it is of.
  NodeId instead_of(NodeId id) const {
    const NodeId twin = twin_[static_cast<size_t>(id)];
    if (twin == kInvalidNode || twin == id || !is_elementwise(graph_.node(id).op) ||
        !is_multiplied_[static_cast<size_t>(id)])
      return kInvalidNode;
    const bool across = is_across_[static_cast<size_t>(id)];
    const bool keeps = across == is_across_[static_cast<size_t>(twin)] ? id < twin : !across;
    return keeps ? kInvalidNode : twin;
  }

 private:
  void visit(NodeId id) {
    const Node& node = graph_.node(id);
    const auto axes = exchange_of(transpose_, node.shape.size());
    if (!axes || !(is_elementwise(node.op) || node.op == Op::kView)) return;
    Computation own{node.op, node.dtype, node.shape, {}, 0, node.operands};
    Computation other = own;
    other.shape = exchanged(node.shape, *axes);
    if (node.op == Op::kView) {
      const auto& view = std::get<ViewAttr>(node.attr);
      own.strides = view.strides;
      other.strides = exchanged(view.strides, *axes);
      own.offset = other.offset = view.offset;
      const Dim &outer = view.strides[axes->first], &inner = view.strides[axes->second];
      is_across_[static_cast<size_t>(id)] = outer.is_constant() && inner.is_constant() &&
                                            !outer.is(0) && outer.constant() < inner.constant();
    } else {
      is_across_[static_cast<size_t>(id)] = std::ranges::any_of(
          node.operands,
          [this](NodeId operand) { return is_across_[static_cast<size_t>(operand)]; });
      for (NodeId& operand : other.operands) operand = twin_of(operand);
      if (std::ranges::find(other.operands, kInvalidNode) != other.operands.end())
        other.operands.clear();
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
  const Transpose transpose_;
  std::vector<NodeId> twin_;
  std::vector<bool>
      is_across_;  // reads something with these axes not in the order in which it lies
  std::vector<bool> is_multiplied_;
  std::map<Computation, NodeId> known_;
};

NodeId transposed(GraphBuilder& b, NodeId x, Transpose transpose) {
  const Shape shape = b.shape(x);
  const Exchange axes = *exchange_of(transpose, shape.size());
  return b.view(x, exchanged(shape, axes), exchanged(contiguous_strides(shape), axes), 0);
}

}  // namespace

Result<Graph> share_transposes(const Graph& graph, Transpose transpose) {
  const Twins twins(graph, transpose);
  TRY(const Graph shared,
      replace_nodes(
          graph, [&](NodeId id) { return twins.instead_of(id); },
          [&](GraphBuilder& b, NodeId, NodeId twin) { return transposed(b, twin, transpose); }));
  return rewrite_nodes(shared, emit);  // without what nobody reads any more
}

}  // namespace kiln
