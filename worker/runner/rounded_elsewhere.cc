#include "worker/runner/tolerance.h"

#include <algorithm>

#include "compiler_core/passes/rewrite.h"

namespace kiln::runner {
namespace {

bool rounds_to_half(const Graph& graph, const Node& node) {
  return is_half(node.dtype) && node.op == Op::kCast &&
         !is_half(graph.node(node.operands[0]).dtype);
}

// Whether the node adds up terms that an f32 holds no sum of exactly.
bool sums_up(const Node& node) {
  return node.dtype == DType::kF32 &&
         (node.op == Op::kReduceSum || traits(node.op).kind == OpKind::kContract);
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
      alternates_ = multiple != kMultiples[0];
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

  // Rounds a computed value `x` of f32 to a half type.
  NodeId same(NodeId x, DType half) { return builder().cast(x, half); }
  NodeId kept(NodeId x, DType /*half*/) { return builder().cast(x, DType::kF32); }
  NodeId rounded_multiple(NodeId x, DType half) {
    const NodeId rounded =
        builder().cast(times(Op::kMul, builder().cast(x, DType::kF32), multiple_), half);
    return times(Op::kDiv, builder().cast(rounded, DType::kF32), multiple_);
  }
  // The sum, shifted by the most that one rounding of each term may change it: up at first, then,
  // where sums are computed from one another, up and down in turn.
  NodeId shifted_sum(const Node& node, std::vector<NodeId> operands) {
    const NodeId sum = emitted(node, operands);
    for (NodeId& operand : operands) operand = magnitudes(operand);
    const double unit = alternates_ && ++sums_ % 2 == 0 ? -0x1p-24 : 0x1p-24;
    const NodeId magnitude = emitted(node, std::move(operands));
    return builder().binary(Op::kAdd, sum, times(Op::kMul, magnitude, unit));
  }
  // Taken of a table rather than of what is picked from it, which may be many times as much.
  NodeId magnitudes(NodeId x) {
    const Node picked = builder().node(x);
    if (picked.op != Op::kGather) return builder().unary(Op::kAbs, x);
    return builder().gather(builder().unary(Op::kAbs, picked.operands[0]), picked.operands[1]);
  }
  NodeId times(Op op, NodeId x, double factor) {
    return builder().binary(
        op, x, builder().broadcast(builder().constant(DType::kF32, factor), builder().shape(x)));
  }

  // The graph's outputs with that rounding.
  std::vector<NodeId> outputs(Rounding rounding) {
    rewrite_.map = inputs_;
    const bool multiples = rounding == &Variants::rounded_multiple;
    for (NodeId id = 0; id < graph_.size() && builder().ok(); ++id) {
      const Node& node = graph_.node(id);
      if (!live_[static_cast<size_t>(id)] || node.op == Op::kInput) continue;
      std::vector<NodeId> operands = rewrite_.operands(node);
      if (rounds_to_half(graph_, node))
        rewrite_[id] = (this->*rounding)(operands[0], node.dtype);
      else if (multiples && sums_up(node))
        rewrite_[id] = shifted_sum(node, std::move(operands));
      else
        rewrite_[id] = emitted(node, std::move(operands));
    }
    std::vector<NodeId> made;
    for (const NodeId id : graph_.outputs()) made.push_back(rewrite_[id]);
    return made;
  }

  // `node` as it stands, or in f32 where some of its operands were of a half type and are f32 now.
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

  // The one of `a` and `b` that is further from `own`, element by element.
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
  bool alternates_ = false;
  int sums_ = 0;
};

}  // namespace

bool rounds_inside(const Graph& graph) {
  std::vector<bool> rounded;  // by node: a half or a sum that was computed, or only moved since
  for (const Node& node : graph.nodes()) {
    const bool from_rounded = std::ranges::any_of(
        node.operands, [&](NodeId id) { return rounded[static_cast<size_t>(id)]; });
    const bool moved = is_half(node.dtype) || traits(node.op).kind == OpKind::kIndexMap;
    if (from_rounded && !moved) return true;
    rounded.push_back(rounds_to_half(graph, node) || sums_up(node) || from_rounded);
  }
  return false;
}

Result<Graph> rounded_elsewhere(const Graph& graph) {
  return Variants(graph).furthest();
}

}  // namespace kiln::runner
