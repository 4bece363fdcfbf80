#include "worker/rounded_elsewhere.h"

#include <algorithm>

#include "compiler_core/passes/rewrite.h"

namespace kiln::runner {
namespace {

bool rounds_to_half(const Graph& graph, const Node& node) {
  return is_half(node.dtype) && node.op == Op::kCast &&
         !is_half(graph.node(node.operands[0]).dtype);
}

// Not near 1, a power of two or one another times one: what is rounded after them is rounded anew.
constexpr double kMultiples[] = {1.37, 1.71};

class Variants {
 public:
  explicit Variants(const Graph& graph)
      : graph_(graph), rewrite_(graph), live_(live_nodes(graph)), inputs_(rewrite_.map) {}

  Result<Graph> furthest() {
    const std::vector<NodeId> own = outputs(&Variants::same);
    std::vector<std::vector<NodeId>> others = {outputs(&Variants::kept)};
    for (const double multiple : kMultiples) {
      multiple_ = multiple;
      others.push_back(outputs(&Variants::rounded_multiple));
    }
    for (size_t i = 0; i < own.size(); ++i) {
      if (!builder().ok()) break;
      const DType dtype = graph_.node(graph_.outputs()[i]).dtype;
      NodeId far = own[i];
      if (is_float(dtype))
        for (const std::vector<NodeId>& other : others) far = further(own[i], far, other[i]);
      rewrite_[graph_.outputs()[i]] = builder().cast(far, dtype);
    }
    return rewrite_.finish();
  }

 private:
  using Rounding = NodeId (Variants::*)(NodeId x, DType half);

  GraphBuilder& builder() { return rewrite_.builder; }

  // How a computed value `x` of f32 becomes a half.
  NodeId same(NodeId x, DType half) { return builder().cast(x, half); }
  NodeId kept(NodeId x, DType /*half*/) { return builder().cast(x, DType::kF32); }
  NodeId rounded_multiple(NodeId x, DType half) {
    const NodeId wide = builder().cast(x, DType::kF32);
    const NodeId factor =
        builder().broadcast(builder().constant(DType::kF32, multiple_), builder().shape(wide));
    const NodeId rounded = builder().cast(builder().binary(Op::kMul, wide, factor), half);
    return builder().binary(Op::kDiv, builder().cast(rounded, DType::kF32), factor);
  }

  // The graph's outputs with that rounding.
  std::vector<NodeId> outputs(Rounding rounding) {
    rewrite_.map = inputs_;
    for (NodeId id = 0; id < graph_.size() && builder().ok(); ++id) {
      const Node& node = graph_.node(id);
      if (!live_[static_cast<size_t>(id)] || node.op == Op::kInput) continue;
      std::vector<NodeId> operands = rewrite_.operands(node);
      rewrite_[id] = rounds_to_half(graph_, node) ? (this->*rounding)(operands[0], node.dtype)
                                                  : emitted(node, std::move(operands));
    }
    std::vector<NodeId> made;
    for (const NodeId id : graph_.outputs()) made.push_back(rewrite_[id]);
    return made;
  }

  // `node` as it stands, or in f32 where some of its operands were halves and are f32 now.
  NodeId emitted(const Node& node, std::vector<NodeId> operands) {
    bool changed = false;
    for (size_t i = 0; i < operands.size(); ++i)
      changed |= builder().dtype(operands[i]) != graph_.node(node.operands[i]).dtype;
    if (!changed) return emit(builder(), node, std::move(operands));
    for (NodeId& operand : operands)
      if (is_half(builder().dtype(operand))) operand = builder().cast(operand, DType::kF32);
    if (node.op == Op::kCast) return builder().cast(operands[0], node.dtype);
    Node wide = node;
    if (is_half(wide.dtype)) wide.dtype = DType::kF32;
    return emit(builder(), wide, std::move(operands));
  }

  // Of `a` and `b`, element by element, the one that is further from `own`.
  NodeId further(NodeId own, NodeId a, NodeId b) {
    const auto wide = [this](NodeId id) {
      return builder().dtype(id) == DType::kF64 ? id : builder().cast(id, DType::kF32);
    };
    const auto distance = [&](NodeId id) {
      return builder().unary(Op::kAbs, builder().binary(Op::kSub, wide(id), wide(own)));
    };
    const NodeId nearer = builder().binary(Op::kLt, distance(a), distance(b));
    return builder().select(nearer, wide(b), wide(a));
  }

  const Graph& graph_;
  Rewrite rewrite_;
  const std::vector<bool> live_;
  const std::vector<NodeId> inputs_;  // the map before anything but the inputs is emitted
  double multiple_ = 1;
};

}  // namespace

bool has_inner_halves(const Graph& graph) {
  std::vector<bool> rounded;  // by node: a half that was computed, or only moved since
  for (const Node& node : graph.nodes()) {
    const bool from_rounded = std::ranges::any_of(
        node.operands, [&](NodeId id) { return rounded[static_cast<size_t>(id)]; });
    if (from_rounded && !is_half(node.dtype)) return true;
    rounded.push_back(rounds_to_half(graph, node) || (from_rounded && is_half(node.dtype)));
  }
  return false;
}

Result<Graph> rounded_elsewhere(const Graph& graph) {
  return Variants(graph).furthest();
}

}  // namespace kiln::runner
