// Several tensors made one, and one made several: stacks, splits, grids.
#include <algorithm>

#include "compiler_core/frontend/decompositions.h"
#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

// chunks by count or by cut points; sizes differ by one at most.
NodeId piece(GraphBuilder& b, NodeId x, int axis, int64_t start, int64_t end) {
  return b.slice(x, axis, end > start ? start : 0, std::max<int64_t>(end - start, 0));
}
Values split_at(Call& c, NodeId x, int axis) {
  GraphBuilder& b = c.b;
  if (!c.ok() || b.shape(x).empty() || !b.shape(x)[at(axis)].is_constant())
    return {c.unsupported("tensor_split of a symbolic size is not covered")};
  const int64_t size = b.shape(x)[at(axis)].constant();
  Values pieces;
  if (c.has("sections")) {
    const int64_t sections = c.integer("sections");
    if (sections < 1 || sections > 65536) return {c.invalid("a split into too many pieces")};
    int64_t start = 0;
    for (int64_t i = 0; i < sections && c.ok(); ++i) {
      const int64_t end = start + size / sections + (i < size % sections ? 1 : 0);
      pieces.push_back(piece(b, x, axis, start, end));
      start = end;
    }
    return pieces;
  }
  int64_t start = 0;
  for (const Dim& cut : c.sizes("indices")) {
    int64_t end = cut.is_constant() ? cut.constant() : 0;
    end = std::clamp<int64_t>(end < 0 ? end + size : end, 0, size);
    pieces.push_back(piece(b, x, axis, start, end));
    start = end;
  }
  pieces.push_back(piece(b, x, axis, start, size));
  return pieces;
}
Values tensor_split(Call& c) {
  const NodeId x = c.tensor("self");
  return split_at(c, x, c.axis("dim", c.b.shape(x).size(), 0));
}

// hsplit, vsplit, dsplit: the columns of a vector are its elements.
template <int axis>
Values split_axis(Call& c) {
  const NodeId x = c.tensor("self");
  const size_t rank = c.b.shape(x).size();
  const int along = axis - static_cast<int>(axis == 1 && rank == 1);
  if (!c.ok() || rank <= at(along)) return {c.invalid("a split of an axis that is not there")};
  return split_at(c, x, along);
}

// Vectors and scalars seen as matrices before they are put side by side.
NodeId at_least(GraphBuilder& b, NodeId x, size_t rank, bool column) {
  Shape shape = b.shape(x);
  while (shape.size() < rank) shape.insert(column ? shape.end() : shape.begin(), Dim(1));
  return b.reshape(x, shape);
}
Values stack_along(Call& c, size_t rank, bool columns, int axis) {
  GraphBuilder& b = c.b;
  std::vector<NodeId> xs = c.tensors("tensors");
  if (!c.ok() || xs.empty()) return {c.invalid("an empty list of tensors")};
  std::vector<Operand> operands;
  for (const NodeId x : xs) operands.push_back({x, {}});
  const DType type = result_type(b, operands);
  for (NodeId& x : xs) x = at_least(b, b.cast(x, type), rank, columns && b.shape(x).size() == 1);
  return {b.concat(xs, axis)};
}
Values hstack(Call& c) {
  const std::vector<NodeId> xs = c.tensors("tensors");
  const bool vectors = c.ok() && !xs.empty() && c.b.shape(xs[0]).size() <= 1;
  return stack_along(c, 1, false, vectors ? 0 : 1);
}
Values vstack(Call& c) {
  return stack_along(c, 2, false, 0);
}
// A vector is a row, a matrix a layer.
NodeId as_volume(GraphBuilder& b, NodeId x) {
  Shape shape = b.shape(x);
  if (shape.size() < 2) shape.insert(shape.begin(), Dim(1));
  while (shape.size() < 3) shape.emplace_back(1);
  return b.reshape(x, shape);
}
Values atleast_3d(Call& c) {
  return {as_volume(c.b, c.tensor("self"))};
}
Values dstack(Call& c) {
  std::vector<NodeId> xs = c.tensors("tensors");
  if (!c.ok() || xs.empty()) return {c.invalid("an empty list of tensors")};
  std::vector<Operand> operands;
  for (const NodeId x : xs) operands.push_back({x, {}});
  const DType type = result_type(c.b, operands);
  for (NodeId& x : xs) x = as_volume(c.b, c.b.cast(x, type));
  return {c.b.concat(xs, 2)};
}
Values column_stack(Call& c) {
  return stack_along(c, 2, true, 1);
}
template <size_t rank>
Values at_least_rank(Call& c) {
  return {at_least(c.b, c.tensor("self"), rank, false)};
}

// Every tensor along an axis of its own, broadcast against the others.
Values meshgrid(Call& c) {
  GraphBuilder& b = c.b;
  const std::vector<NodeId> xs = c.tensors("tensors");
  const bool xy = c.text("indexing", "ij") == "xy" && xs.size() > 1;
  if (!c.ok()) return {};
  Shape shape;
  for (const NodeId x : xs) {
    if (b.shape(x).size() > 1) return {c.invalid("meshgrid needs vectors")};
    shape.push_back(numel(b.shape(x)));
  }
  if (xy) std::swap(shape[0], shape[1]);
  Values grids;
  for (size_t i = 0; i < xs.size(); ++i) {
    const int axis = static_cast<int>(xy && i < 2 ? 1 - i : i);
    grids.push_back(
        b.broadcast_in(b.reshape(xs[i], {shape[at(axis)]}), shape, std::span(&axis, 1)));
  }
  return grids;
}

// The rows of a grid's points.
Values cartesian_prod(Call& c) {
  GraphBuilder& b = c.b;
  Values columns = meshgrid(c);
  if (!c.ok() || columns.empty()) return {c.invalid("a product of no tensors")};
  if (columns.size() == 1) return columns;
  const Dim points = numel(b.shape(columns[0]));
  for (NodeId& column : columns) column = b.reshape(column, {points, 1});
  return {b.concat(columns, 1)};
}

Values broadcast_tensors(Call& c) {
  Values xs = c.tensors("tensors");
  if (!c.ok()) return {};
  Shape shape;
  for (const NodeId x : xs) shape = broadcast_shapes(c.b, shape, c.b.shape(x));
  if (!c.ok()) return {};
  for (NodeId& x : xs) x = c.b.broadcast(x, shape);
  return xs;
}

constexpr Lowering kStackingLowerings[] = {
    {"aten.tensor_split.sections", tensor_split},
    {"aten.tensor_split.indices", tensor_split},
    {"aten.meshgrid.default", meshgrid},
    {"aten.meshgrid.indexing", meshgrid},
    {"aten.hstack.default", hstack},
    {"aten.vstack.default", vstack},
    {"aten.row_stack.default", vstack},
    {"aten.column_stack.default", column_stack},
    {"aten.dstack.default", dstack},
    {"aten.atleast_3d.default", atleast_3d},
    {"aten.cartesian_prod.default", cartesian_prod},
    {"aten.hsplit.int", split_axis<1>},
    {"aten.hsplit.array", split_axis<1>},
    {"aten.vsplit.int", split_axis<0>},
    {"aten.vsplit.array", split_axis<0>},
    {"aten.dsplit.int", split_axis<2>},
    {"aten.dsplit.array", split_axis<2>},
    {"aten.atleast_1d.default", at_least_rank<1>},
    {"aten.atleast_2d.default", at_least_rank<2>},
    {"aten.broadcast_tensors.default", broadcast_tensors},
};

}  // namespace

std::span<const Lowering> stacking_lowerings() {
  return kStackingLowerings;
}

}  // namespace kiln
