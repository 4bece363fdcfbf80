// Gathering: embedding, gather, index, and ops that masks express.
#include <algorithm>

#include "compiler_core/frontend/decompositions.h"

namespace kiln {
namespace {

Values embedding(Call& c) {
  const NodeId weight = c.tensor("weight"), indices = c.tensor("indices");
  return {c.b.gather(weight, c.b.cast(indices, DType::kI64))};
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

Values gather(Call& c) {
  const NodeId x = c.tensor("self"), index = c.tensor("index");
  const int axis = c.axis("dim", c.b.shape(x).size());
  return {c.ok() ? gather_along(c.b, x, axis, index) : kInvalidNode};
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

// The elements at places in the flattened x.
Values take(Call& c) {
  const NodeId x = c.tensor("self"), index = c.tensor("index");
  if (!c.ok()) return {};
  return {c.b.gather(c.b.reshape(x, {numel(c.b.shape(x))}), c.b.cast(index, DType::kI64))};
}

// gather whose index broadcasts against x outside the axis; without an axis, of the flattened x.
Values take_along(Call& c) {
  GraphBuilder& b = c.b;
  NodeId x = c.tensor("self"), index = c.tensor("indices");
  if (!c.ok()) return {};
  if (!c.has("dim")) {
    x = b.reshape(x, {numel(b.shape(x))});
    index = b.reshape(index, {numel(b.shape(index))});
    return {gather_along(b, x, 0, index)};
  }
  const int axis = c.axis("dim", b.shape(x).size());
  Shape from = b.shape(x), to = b.shape(index);
  if (!c.ok() || from.empty() || from.size() != to.size())
    return {c.invalid("take_along_dim needs a tensor and an index of one rank")};
  const Dim along = from[at(axis)], picked = to[at(axis)];
  from[at(axis)] = to[at(axis)] = 1;
  Shape shape = broadcast_shapes(b, from, to);
  shape[at(axis)] = along;
  x = b.broadcast(x, shape);
  shape[at(axis)] = picked;
  return {gather_along(b, x, axis, b.broadcast(index, shape))};
}

constexpr Lowering kIndexingLowerings[] = {
    {"aten.embedding.default", embedding},
    {"aten.index.Tensor", index},
    {"aten._unsafe_index.Tensor", index},
    {"aten.index_select.default", index_select},
    {"aten.gather.default", gather},
    {"aten.take.default", take},
    {"aten.take_along_dim.default", take_along},
    {"aten.tril.default", triangle<true>},
    {"aten.triu.default", triangle<false>},
    {"aten.diff.default", diff},
};

}  // namespace

std::span<const Lowering> indexing_lowerings() {
  return kIndexingLowerings;
}

}  // namespace kiln
