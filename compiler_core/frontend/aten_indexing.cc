// Reading by index: embedding, gather, index, and what masks express.
#include <algorithm>

#include "compiler_core/frontend/decompositions.h"

namespace kiln {
namespace {

size_t at(int axis) {
  return static_cast<size_t>(axis);
}

Values embedding(Call& c) {
  const NodeId weight = c.tensor("weight"), indices = c.tensor("indices");
  return {c.b.gather(weight, c.b.cast(indices, DType::kI64))};
}

// x with `axes` first, in their order, then the others in theirs.
NodeId move_to_front(GraphBuilder& b, NodeId x, const std::vector<int>& axes) {
  std::vector<int> order = axes;
  for (int i = 0; i < static_cast<int>(b.shape(x).size()); ++i)
    if (std::find(axes.begin(), axes.end(), i) == axes.end()) order.push_back(i);
  return b.permute(x, order);
}

// The `count` leading axes of x moved behind the `before` axes that follow them.
NodeId move_behind(GraphBuilder& b, NodeId x, size_t count, size_t before) {
  const size_t rank = b.shape(x).size();
  if (!b.ok() || before == 0 || count == 0) return x;
  std::vector<int> order;
  for (size_t i = 0; i < rank; ++i) {
    const size_t from = i < before ? count + i : i < before + count ? i - before : i;
    order.push_back(static_cast<int>(from));
  }
  return b.permute(x, order);
}

NodeId index_axes(Call& c, NodeId x, const std::vector<int>& axes, std::vector<NodeId> indices) {
  GraphBuilder& b = c.b;
  if (axes.empty()) return x;
  Shape shape;
  for (NodeId index : indices) {
    if (b.dtype(index) == DType::kBool || b.dtype(index) == DType::kU8)
      return c.unsupported(
          "indexing by a mask gives a shape that depends on the data; use where "
          "or masked_fill");
    shape = broadcast_shapes(b, shape, b.shape(index));
  }
  for (NodeId& index : indices) index = b.broadcast(index, shape);
  const NodeId found = gather_leading(b, move_to_front(b, x, axes), indices);
  // Next to each other, the indexed axes are replaced in place; apart, the result has them first.
  const bool adjacent = axes.back() - axes.front() + 1 == static_cast<int>(axes.size());
  return adjacent ? move_behind(b, found, shape.size(), at(axes.front())) : found;
}

Values index(Call& c) {
  const NodeId x = c.tensor("self");
  std::vector<int> axes;
  std::vector<NodeId> indices;
  const std::vector<NodeId> given = c.optional_tensors("indices");
  if (!c.ok()) return {};
  if (given.size() > c.b.shape(x).size()) return {c.invalid("has more indices than axes")};
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] == kInvalidNode) continue;
    axes.push_back(static_cast<int>(i));
    indices.push_back(given[i]);
  }
  return {index_axes(c, x, axes, std::move(indices))};
}

Values index_select(Call& c) {
  const NodeId x = c.tensor("self"), index = c.tensor("index");
  const int axis = c.axis("dim", c.b.shape(x).size());
  if (!c.ok() || c.b.shape(x).empty() || c.b.shape(index).size() != 1)
    return {c.invalid("index_select needs an axis and a vector of indices")};
  return {index_axes(c, x, {axis}, {index})};
}

// out[i, j, k] = x[i, index[i, j, k], k] for axis 1: one index into the flattened x.
NodeId gather_along(Call& c, NodeId x, int axis, NodeId index) {
  GraphBuilder& b = c.b;
  const Shape from = b.shape(x), to = b.shape(index);
  if (!c.ok() || from.empty() || from.size() != to.size())
    return c.invalid("gather needs a tensor and an index of one rank");
  const std::vector<Dim> strides = contiguous_strides(from);
  NodeId linear = kInvalidNode;
  for (size_t i = 0; i < from.size(); ++i) {
    // The only coordinate of an axis of size 1 is 0.
    if (i != at(axis) && to[i].is(1)) continue;
    NodeId term = i == at(axis) ? b.cast(index, DType::kI64) : coordinate(b, to, i);
    if (!strides[i].is(1))
      term = b.binary(Op::kMul, term, b.broadcast(size_value(b, strides[i], DType::kI64), to));
    linear = linear == kInvalidNode ? term : b.binary(Op::kAdd, linear, term);
    if (!c.ok()) return kInvalidNode;
  }
  return b.gather(b.reshape(x, {numel(from)}), linear);
}

Values gather(Call& c) {
  const NodeId x = c.tensor("self"), index = c.tensor("index");
  return {gather_along(c, x, c.axis("dim", c.b.shape(x).size()), index)};
}

// One index along the axis: each element asks whether it is meant.
Values scatter_value(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self"), index = c.tensor("index");
  const int axis = c.axis("dim", b.shape(x).size());
  const Number value = c.number("value");
  if (!c.ok()) return {};
  const Shape shape = b.shape(x);
  Shape expected = shape;
  if (!shape.empty()) expected[at(axis)] = 1;
  if (shape.empty() || b.shape(index) != expected)
    return {c.unsupported("scatter of more than one index along its axis is not covered")};
  const NodeId wanted = b.broadcast(b.cast(index, DType::kI64), shape);
  const NodeId here = b.binary(Op::kEq, coordinate(b, shape, at(axis)), wanted);
  return {b.select(here, b.broadcast(scalar(b, b.dtype(x), value), shape), x)};
}

// x where column - row <= diagonal (tril) or >= diagonal (triu), else 0.
template <bool lower>
Values triangle(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self");
  const int64_t diagonal = c.integer("diagonal", 0);
  const Shape shape = b.shape(x);
  if (!c.ok() || shape.size() < 2) return {c.invalid("a triangle of a tensor without two axes")};
  const NodeId row = coordinate(b, shape, shape.size() - 2);
  const NodeId column = coordinate(b, shape, shape.size() - 1);
  const NodeId limit =
      b.binary(Op::kAdd, row, b.broadcast(b.constant_int(DType::kI64, diagonal), shape));
  const NodeId kept = lower ? b.binary(Op::kLe, column, limit) : b.binary(Op::kLe, limit, column);
  return {b.select(kept, x, constant_like(b, x, 0))};
}

// x[i + 1] - x[i] along an axis, `n` times, with something before and behind.
Values diff(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId self = c.tensor("self");
  const int axis = c.axis("dim", b.shape(self).size(), -1);
  const int64_t times = c.integer("n", 1);
  std::vector<NodeId> pieces;
  if (c.has("prepend")) pieces.push_back(c.tensor("prepend"));
  pieces.push_back(self);
  if (c.has("append")) pieces.push_back(c.tensor("append"));
  if (!c.ok()) return {};
  if (times < 0 || times > 16) return {c.unsupported("diff of so high an order is not covered")};
  NodeId x = b.concat(pieces, axis);
  for (int64_t i = 0; i < times && c.ok(); ++i) {
    const Shape shape = b.shape(x);
    if (shape.empty()) return {c.invalid("diff of a scalar")};
    const Dim size = shape[at(axis)].is(0) ? Dim(0) : shape[at(axis)] - Dim(1);
    const NodeId right = b.slice(x, axis, size.is(0) ? 0 : 1, size);
    const NodeId left = b.slice(x, axis, 0, size);
    x = b.binary(b.dtype(x) == DType::kBool ? Op::kXor : Op::kSub, right, left);
  }
  return {x};
}

// log-softmax, the target's entry, the mean over what is not ignored.
Values cross_entropy(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self"), target = b.cast(c.tensor("target"), DType::kI64);
  const int64_t reduction = c.integer("reduction", 1), ignored = c.integer("ignore_index", -100);
  if (!c.ok()) return {};
  const Shape classes = b.shape(x), samples = b.shape(target);
  if (c.has("weight") || c.real("label_smoothing", 0) != 0 || classes.size() != 2 ||
      samples.size() != 1 || !is_float(b.dtype(x)))
    return {
        c.unsupported("cross_entropy with weights, label smoothing, class probabilities or "
                      "more than two axes is not covered")};
  const DType type = b.dtype(x);
  const NodeId logs = b.cast(log_softmax(b, b.cast(x, compute_type(type)), 1), type);
  const NodeId kept =
      b.binary(Op::kNe, target, constant_like(b, target, static_cast<double>(ignored)));
  const NodeId safe = b.select(kept, target, constant_like(b, target, 0));
  const NodeId entry = gather_along(c, logs, 1, b.reshape(safe, {samples[0], 1}));
  const NodeId loss = b.unary(Op::kNeg, b.reshape(entry, samples));
  const NodeId losses = b.select(kept, loss, constant_like(b, loss, 0));
  if (reduction == 0) return {losses};
  const NodeId total = b.reduce(Op::kReduceSum, losses, {0});
  if (reduction == 2) return {total};
  const NodeId count = b.reduce(Op::kReduceSum, b.cast(kept, DType::kI64), {0});
  return {b.binary(Op::kDiv, total, b.cast(count, type))};
}

constexpr Lowering kLowerings[] = {
    {"aten.embedding.default", embedding},
    {"aten.index.Tensor", index},
    {"aten.index_select.default", index_select},
    {"aten.gather.default", gather},
    {"aten.scatter.value", scatter_value},
    {"aten.tril.default", triangle<true>},
    {"aten.triu.default", triangle<false>},
    {"aten.diff.default", diff},
    {"aten.cross_entropy_loss.default", cross_entropy},
};

}  // namespace

std::span<const Lowering> indexing_lowerings() {
  return kLowerings;
}

}  // namespace kiln
