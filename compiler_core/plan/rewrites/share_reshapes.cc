#include "compiler_core/plan/rewrites/graph_rewrites.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler_core/passes/rewrite.h"
#include "compiler_core/plan/simple_op.h"

namespace kiln {
namespace {

// Numbers values so that two have one number when their elements are equal in row-major order.
class Sharer {
 public:
  NodeId emit_shared(GraphBuilder& b, const Node& node, std::vector<NodeId> operands) {
    const NodeId made = emit(b, node, std::move(operands));
    if (made == kInvalidNode || number_.count(made) != 0) return made;
    const Node& value = b.node(made);
    note_product(b, made);
    if (is_elementwise(value.op)) {
      const auto [first, fresh] = arithmetic_.try_emplace(key_of(value), made);
      if (!fresh) return instead(b, made, first->second);
    }
    number_[made] = value.op == Op::kView ? view_number(b, made) : made;
    return made;
  }

 private:
  // `made` has the elements of `known`.
  NodeId instead(GraphBuilder& b, NodeId made, NodeId known) {
    const NodeId number = number_.at(known);
    number_[made] = number;
    if (from_product_.count(made) == 0 || b.shape(known) == b.shape(made)) return made;
    if (near_memory_.count(made) != 0) return made;
    const NodeId reshaped = b.reshape(known, Shape(b.shape(made)));
    number_[reshaped] = number;
    from_product_.insert(reshaped);
    return reshaped;
  }

  // Products, and arithmetic on them: what takes a kernel to compute again, or a read of what one
  // stored. Arithmetic on inputs is done where it is read, in whatever axes that is.
  void note_product(const GraphBuilder& b, NodeId id) {
    const Node& node = b.node(id);
    const bool passes = is_elementwise(node.op) || node.op == Op::kView;
    if (traits(node.op).kind == OpKind::kContract ||
        (passes && std::any_of(node.operands.begin(), node.operands.end(),
                               [this](NodeId x) { return from_product_.count(x) != 0; })))
      from_product_.insert(id);
    if (!is_half(node.dtype) && is_near_memory(b, node)) near_memory_.insert(id);
  }

  // Whether it takes a few instructions from what lies in memory: halves, which are stored where a
  // product or a reduction gives them, and inputs. So it is computed wherever it is read.
  bool is_near_memory(const GraphBuilder& b, const Node& node) const {
    if (traits(node.op).kind == OpKind::kSource) return true;
    if (node.op == Op::kCast && is_half(b.dtype(node.operands[0]))) return true;
    const bool passes = is_simple(node.op) || node.op == Op::kView;
    return passes && std::ranges::all_of(node.operands, [&](NodeId x) {
             return b.node(x).op == Op::kInput || near_memory_.count(x) != 0;
           });
  }

  NodeId number(NodeId id) const {
    const auto found = number_.find(id);
    return found == number_.end() ? id : found->second;  // an input
  }

  using Arithmetic = std::tuple<Op, DType, std::vector<NodeId>>;
  Arithmetic key_of(const Node& value) const {
    std::vector<NodeId> operands;
    for (NodeId operand : value.operands) operands.push_back(number(operand));
    if (traits(value.op).commutative) std::sort(operands.begin(), operands.end());
    return {value.op, value.dtype, std::move(operands)};
  }

  // By what is read and how; axes that are traversed as one are merged.
  using Walk = std::tuple<NodeId, Dim, std::vector<std::pair<Dim, Dim>>>;
  NodeId view_number(const GraphBuilder& b, NodeId made) {
    const Node& view = b.node(made);
    const auto& attr = std::get<ViewAttr>(view.attr);
    std::vector<std::pair<Dim, Dim>> walk;  // size, stride
    for (size_t i = 0; i < view.shape.size(); ++i) {
      const Dim &size = view.shape[i], &stride = attr.strides[i];
      if (size.is(1)) continue;
      if (!walk.empty() && walk.back().second == stride * size)
        walk.back() = {walk.back().first * size, stride};
      else
        walk.emplace_back(size, stride);
    }
    const Dim whole = numel(b.shape(view.operands[0]));
    const bool reshape = numel(view.shape) == whole && attr.offset.is(0) && walk.size() <= 1 &&
                         (walk.empty() || walk[0] == std::pair<Dim, Dim>(whole, 1));
    if (reshape) return number(view.operands[0]);
    return views_.try_emplace({number(view.operands[0]), attr.offset, std::move(walk)}, made)
        .first->second;
  }

  std::set<NodeId> from_product_;
  std::set<NodeId> near_memory_;  // of those that are no halves
  std::map<NodeId, NodeId> number_;
  std::map<Arithmetic, NodeId> arithmetic_;
  std::map<Walk, NodeId> views_;
};

}  // namespace

Result<Graph> share_reshapes(const Graph& graph) {
  Sharer sharer;
  TRY(const Graph shared,
      rewrite_nodes(graph, [&](GraphBuilder& b, const Node& node, std::vector<NodeId> operands) {
        return sharer.emit_shared(b, node, std::move(operands));
      }));
  return rewrite_nodes(shared, emit);  // without what nobody reads any more
}

}  // namespace kiln
