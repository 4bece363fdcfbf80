#include "tests/compiler_core/kernels/random_graph.h"

#include "compiler_core/base/check.h"

namespace kiln::testing {
namespace {

constexpr DType kInputTypes[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI64,
                                 DType::kI32, DType::kI16, DType::kI8,  DType::kU8,   DType::kBool};

// What a rounded f32 may become without its error showing.
constexpr DType kHalves[] = {DType::kF32, DType::kF16, DType::kBF16};

}  // namespace

NodeId RandomGraph::leaf(DType dtype, const Shape& space) {
  const size_t rank = space.size();
  const int64_t kind = pick(0, 7);
  if (kind <= 2 || rank == 0) return builder_.input(dtype, space);
  if (kind == 3) {  // a broadcast along some axes
    Shape shape = space;
    for (Dim& dim : shape)
      if (pick(0, 1) == 0) dim = 1;
    return builder_.broadcast(builder_.input(dtype, shape), space);
  }
  if (kind == 4) {  // axes in another order
    std::vector<int> axes;
    for (size_t k = 0; k < rank; ++k) axes.push_back(static_cast<int>(k));
    std::shuffle(axes.begin(), axes.end(), random_);
    Shape shape(rank);
    for (size_t k = 0; k < rank; ++k) shape[static_cast<size_t>(axes[k])] = space[k];
    return builder_.permute(builder_.input(dtype, shape), axes);
  }
  if (kind == 5) {  // every second element, maybe backwards
    const int axis = static_cast<int>(pick(0, static_cast<int64_t>(rank) - 1));
    const Dim size = space[static_cast<size_t>(axis)];
    const int64_t step = pick(0, 1) == 0 ? 2 : -pick(1, 2);
    Shape shape = space;
    shape[static_cast<size_t>(axis)] = size * 2 + 3;
    const Dim start = step > 0 ? Dim(pick(0, 3)) : size * 2 + pick(0, 2);
    return builder_.slice(builder_.input(dtype, shape), axis, start, size, step);
  }
  if (kind == 6) {  // a scalar
    if (is_float(dtype)) return builder_.broadcast(builder_.constant(dtype, 0.75), space);
    return builder_.broadcast(builder_.constant_int(dtype, 3), space);
  }
  if (!is_constant(space)) return builder_.input(dtype, space);
  return builder_.reshape(builder_.input(dtype, {numel(space)}), space);
}

NodeId RandomGraph::moved(DType dtype, const Shape& space) {
  const int axis = static_cast<int>(pick(0, static_cast<int64_t>(space.size()) - 1));
  const auto at = static_cast<size_t>(axis);
  const Dim size = space[at];
  if (size.is_constant() && size.constant() < 2) return leaf(dtype, space);
  const Dim first = size.is_constant() ? Dim(pick(1, size.constant() - 1)) : size - 1;
  Shape part = space;
  part[at] = first;
  NodeId a = leaf(dtype, part);
  if (pick(0, 1) == 0) {
    part[at] = size - first;
    const NodeId parts[] = {a, leaf(dtype, part)};
    return builder_.concat(parts, axis);
  }
  std::vector<Dim> low(space.size(), Dim(0)), high(space.size(), Dim(0));
  low[at] = pick(0, (size - first).constant());
  high[at] = size - first - low[at];
  const ConstantAttr value =
      is_float(dtype) ? constant_bits(dtype, -1.5) : ConstantAttr{dtype == DType::kBool ? 1u : 5u};
  return builder_.pad(a, low, high, value);
}

RandomGraph::Value RandomGraph::leaf_as(DType dtype, const Shape& space) {
  if (dtype != DType::kF32) return {leaf(dtype, space), true};
  const DType from = kInputTypes[pick(0, 9)];
  return {builder_.cast(leaf(pick(0, 2) == 0 ? DType::kF32 : from, space), dtype), true};
}

NodeId RandomGraph::through_half(NodeId x) {
  const DType half = pick(0, 1) == 0 ? DType::kF16 : DType::kBF16;
  return builder_.cast(builder_.cast(x, half), builder_.dtype(x));
}

RandomGraph::Value RandomGraph::unary(Value x) {
  const DType dtype = builder_.dtype(x.id);
  if (dtype == DType::kBool) return {builder_.unary(Op::kNot, x.id), x.exact};
  if (!is_float(dtype)) {
    constexpr Op kOps[] = {Op::kNeg, Op::kAbs, Op::kSign, Op::kNot};
    return {builder_.unary(kOps[pick(0, 3)], x.id), x.exact};
  }
  if (x.exact && pick(0, 2) == 0) {
    constexpr Op kOps[] = {Op::kFloor, Op::kCeil, Op::kTrunc, Op::kRound, Op::kSign};
    return {builder_.unary(kOps[pick(0, 4)], x.id), true};
  }
  constexpr Op kOps[] = {Op::kNeg, Op::kAbs, Op::kSin, Op::kCos, Op::kTanh, Op::kErf};
  const NodeId y = builder_.unary(kOps[pick(0, 5)], x.id);
  if (dtype == DType::kF32 && pick(0, 5) == 0) return {through_half(y), false};
  if (pick(0, 3) != 0) return {y, false};
  // In the domain of the rest.
  const NodeId square = builder_.binary(Op::kMul, y, y);
  const NodeId one = builder_.broadcast(builder_.constant(dtype, 1), builder_.shape(y));
  constexpr Op kPositive[] = {Op::kSqrt, Op::kRsqrt, Op::kReciprocal,
                              Op::kLog,  Op::kLog1p, Op::kExpm1};
  const NodeId bounded = builder_.binary(Op::kMin, square, one);
  return {builder_.unary(kPositive[pick(0, 5)], builder_.binary(Op::kAdd, bounded, one)), false};
}

RandomGraph::Value RandomGraph::combine(Value a, Value b, Value c) {
  const DType dtype = builder_.dtype(a.id);
  if (dtype == DType::kBool) {
    constexpr Op kOps[] = {Op::kAnd, Op::kOr, Op::kXor, Op::kLt, Op::kEq};
    return {builder_.binary(kOps[pick(0, 4)], a.id, b.id), a.exact && b.exact};
  }
  if (a.exact && b.exact && pick(0, 2) == 0) {
    constexpr Op kOps[] = {Op::kLt, Op::kLe, Op::kEq, Op::kNe};
    const NodeId less = builder_.binary(kOps[pick(0, 3)], a.id, b.id);
    return {builder_.select(less, a.id, c.id), c.exact};
  }
  if (!is_float(dtype)) {
    constexpr Op kOps[] = {Op::kAdd, Op::kSub, Op::kMul, Op::kMax, Op::kMin,
                           Op::kAnd, Op::kOr,  Op::kXor, Op::kDiv, Op::kRem};
    return {builder_.binary(kOps[pick(0, 9)], a.id, b.id), true};
  }
  constexpr Op kOps[] = {Op::kAdd, Op::kSub, Op::kMul, Op::kMax, Op::kMin};
  return {builder_.binary(kOps[pick(0, 4)], a.id, b.id), false};
}

Graph RandomGraph::pointwise(const Shape& space, int operations, bool movable) {
  const DType dtypes[] = {DType::kF32, DType::kF32, DType::kF32, kInputTypes[pick(1, 9)]};
  DType dtype = dtypes[pick(0, 3)];
  if (is_half(dtype)) dtype = DType::kF32;
  const auto operand = [&]() -> Value {
    if (movable && pick(0, 2) == 0 && !space.empty()) return {moved(dtype, space), true};
    return leaf_as(dtype, space);
  };
  std::vector<Value> values = {operand(), operand()};
  const auto some = [&] { return values[static_cast<size_t>(pick(0, std::ssize(values) - 1))]; };
  for (int i = 0; i < operations; ++i) {
    if (pick(0, 4) == 0) values.push_back(operand());
    // Products are tamed: errors must not grow.
    Value next = pick(0, 2) == 0 ? unary(some()) : combine(some(), values.back(), some());
    if (is_float(dtype) && pick(0, 1) == 0) next = {builder_.unary(Op::kTanh, next.id), false};
    values.push_back(next);
  }
  std::vector<NodeId> outputs = {values.back().id};
  // Another output of another dtype.
  const Value other = unary(some());
  if (dtype == DType::kF32)
    outputs.push_back(
        builder_.cast(other.id, other.exact ? kInputTypes[pick(0, 9)] : kHalves[pick(0, 2)]));
  else if (other.id != outputs[0])
    outputs.push_back(other.id);
  auto graph = builder_.finish(outputs);
  CHECK(graph.has_value(), "a random graph is well formed");
  return *std::move(graph);
}

Graph RandomGraph::reduction(const Shape& space, int begin, int end) {
  const DType choices[] = {DType::kF32, DType::kF32, DType::kF32,
                           DType::kF64, DType::kI64, DType::kI32};
  const DType dtype = choices[pick(0, 5)];
  std::vector<int> axes;
  for (int k = begin; k < end; ++k) axes.push_back(k);
  const auto spread = [&](NodeId reduced) {
    std::vector<int> places;
    for (int k = 0; k < static_cast<int>(space.size()); ++k)
      if (k < begin || k >= end) places.push_back(k);
    return builder_.broadcast_in(reduced, space, places);
  };
  const auto bounded = [&](Value x) {
    return is_float(dtype) ? builder_.unary(Op::kTanh, x.id) : x.id;
  };
  std::vector<NodeId> outputs;
  NodeId full =
      bounded(combine(leaf_as(dtype, space), leaf_as(dtype, space), leaf_as(dtype, space)));
  const int64_t levels = pick(1, 3);
  for (int64_t level = 0; level < levels; ++level) {
    constexpr Op kOps[] = {Op::kReduceSum, Op::kReduceSum, Op::kReduceMax, Op::kReduceMin};
    NodeId reduced = builder_.reduce(kOps[pick(0, 3)], full, axes);
    if (pick(0, 2) == 0) {  // two reductions in one loop
      const NodeId second = builder_.reduce(Op::kReduceMax, builder_.unary(Op::kNeg, full), axes);
      reduced = builder_.binary(Op::kAdd, reduced, second);
    }
    if (pick(0, 1) == 0) {
      Shape kept = builder_.shape(reduced);
      reduced = builder_.binary(Op::kSub, reduced, leaf(dtype, kept));
    }
    if (level + 1 == levels || pick(0, 2) == 0)
      outputs.push_back(
          dtype == DType::kF32 && pick(0, 2) == 0 ? builder_.cast(reduced, DType::kBF16) : reduced);
    if (level + 1 == levels && pick(0, 2) == 0) break;
    const NodeId tamed = is_float(dtype) ? builder_.unary(Op::kTanh, reduced) : reduced;
    full = builder_.binary(pick(0, 1) == 0 ? Op::kSub : Op::kMul, full, spread(tamed));
    if (is_float(dtype) && pick(0, 1) == 0) full = builder_.unary(Op::kExp, full);
    if (level + 1 == levels || pick(0, 2) == 0)
      outputs.push_back(dtype == DType::kF32 && pick(0, 1) == 0 ? builder_.cast(full, DType::kF16)
                                                                : full);
  }
  auto graph = builder_.finish(outputs);
  CHECK(graph.has_value(), "a random graph is well formed");
  return *std::move(graph);
}

}  // namespace kiln::testing
