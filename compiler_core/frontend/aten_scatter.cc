// Scattering: scatter, index_put and ops that replace a part of a tensor.
#include <algorithm>
#include <cmath>

#include "compiler_core/frontend/decompositions.h"
#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

// The part of `x` that `shape`, nowhere larger, covers from the first element on.
NodeId corner(GraphBuilder& b, NodeId x, const Shape& shape) {
  for (size_t i = 0; i < shape.size() && b.ok(); ++i)
    if (b.shape(x)[i] != shape[i]) x = b.slice(x, static_cast<int>(i), 0, shape[i]);
  return x;
}

// Combines `updates`, of the index's shape, into x at the places along `axis`.
NodeId scatter_along(GraphBuilder& b, NodeId x, int axis, NodeId index, NodeId updates,
                     Combine combine) {
  const NodeId places = places_along(b, b.shape(x), axis, index);
  if (!b.ok()) return kInvalidNode;
  const Shape shape = b.shape(x), flat = {numel(shape)}, count = {numel(b.shape(index))};
  const NodeId result =
      b.scatter(b.reshape(x, flat), b.reshape(places, count), b.reshape(updates, count), combine);
  return b.reshape(result, shape);
}

// x with `rows`, one along `axis`, in place of those at `index`, of one element: each element asks
// whether it is meant, which fuses and needs no order of axes. As Scatter, it counts a negative index
// from the end, and drops one that is out of range.
NodeId set_one(GraphBuilder& b, NodeId x, int axis, NodeId index, NodeId rows) {
  const Shape shape = b.shape(x);
  Shape single = shape;
  single[at(axis)] = 1;
  const Expr given = Expr{&b, b.cast(index, DType::kI64)}.reshape({});
  const Expr size{&b, size_value(b, shape[at(axis)], DType::kI64)};
  const Expr place = choose(given < 0, given + size, given);
  const NodeId here =
      b.binary(Op::kEq, coordinate(b, shape, at(axis)), b.broadcast(place.id, shape));
  return b.select(here, b.broadcast(b.reshape(rows, std::move(single)), shape), x);
}

struct ScatterArguments {
  NodeId x = kInvalidNode, index = kInvalidNode, updates = kInvalidNode;
  int axis = 0;
};

// `source`: a tensor at least as large as the index, or a number.
ScatterArguments scatter_arguments(Call& c, std::string_view source) {
  GraphBuilder& b = c.b;
  ScatterArguments result;
  result.x = c.tensor("self");
  result.index = c.tensor("index");
  result.axis = c.axis("dim", b.shape(result.x).size());
  const Operand given = c.operand(source);
  if (!c.ok()) return result;
  // A scalar is a vector of one.
  if (b.shape(result.x).empty()) result.x = b.reshape(result.x, {1});
  if (b.shape(result.index).empty()) result.index = b.reshape(result.index, {1});
  const Shape shape = b.shape(result.index);
  if (given.number) {
    result.updates = b.broadcast(scalar(b, b.dtype(result.x), *given.number), shape);
    return result;
  }
  NodeId updates = b.cast(given.id, b.dtype(result.x));
  if (b.shape(updates).empty()) updates = b.reshape(updates, {1});
  if (b.shape(updates).size() != shape.size()) {
    c.invalid("scatter needs an index and a source of one rank");
    return result;
  }
  result.updates = corner(b, updates, shape);
  return result;
}

// Back to the shape that `self` was given in.
Values as_self(Call& c, NodeId result) {
  return {c.ok() ? c.b.reshape(result, c.b.shape(c.tensor("self"))) : kInvalidNode};
}

template <Combine combine>
Values scatter(Call& c) {
  const ScatterArguments a = scatter_arguments(c, c.has("src") ? "src" : "value");
  if (!c.ok()) return {};
  return as_self(c, scatter_along(c.b, a.x, a.axis, a.index, a.updates, combine));
}

// One index along the axis and a number: each element asks whether it is meant, which fuses.
Values scatter_value(Call& c) {
  GraphBuilder& b = c.b;
  const ScatterArguments a = scatter_arguments(c, "value");
  if (!c.ok()) return {};
  Shape single = b.shape(a.x);
  single[at(a.axis)] = 1;
  if (b.shape(a.index) != single)
    return as_self(c, scatter_along(b, a.x, a.axis, a.index, a.updates, Combine::kSet));
  const Shape shape = b.shape(a.x);
  const NodeId wanted = b.broadcast(b.cast(a.index, DType::kI64), shape);
  const NodeId here = b.binary(Op::kEq, coordinate(b, shape, at(a.axis)), wanted);
  return as_self(c, b.select(here, b.broadcast(a.updates, shape), a.x));
}

std::optional<Combine> combine_named(std::string_view name) {
  if (name == "sum" || name == "add" || name == "mean") return Combine::kAdd;
  if (name == "prod" || name == "multiply") return Combine::kMul;
  if (name == "amax") return Combine::kMax;
  if (name == "amin") return Combine::kMin;
  return std::nullopt;
}

// The older forms: reduce is "add" or "multiply".
Values scatter_combine(Call& c) {
  const std::optional<Combine> combine = combine_named(c.text("reduce", ""));
  if (!combine) return {c.invalid("there is no such way to reduce")};
  const ScatterArguments a = scatter_arguments(c, c.has("src") ? "src" : "value");
  if (!c.ok()) return {};
  return as_self(c, scatter_along(c.b, a.x, a.axis, a.index, a.updates, *combine));
}

// The neutral element of `combine`.
Expr neutral(Expr x, Combine combine) {
  if (combine == Combine::kAdd) return x.like(0);
  if (combine == Combine::kMul) return x.like(1);
  const bool least = combine == Combine::kMax;
  if (is_float(x.dtype())) return x.like(least ? -HUGE_VAL : HUGE_VAL);
  const int bits = static_cast<int>(size_of(x.dtype())) * 8 - (x.dtype() == DType::kU8 ? 0 : 1);
  const int64_t greatest = bits == 63 ? INT64_MAX : (int64_t{1} << bits) - 1;
  const int64_t smallest = x.dtype() == DType::kU8 ? 0 : -greatest - 1;
  return Expr{x.b, x.b->constant_int(x.dtype(), least ? smallest : greatest)}.broadcast(x.shape());
}

Values scatter_reduce(Call& c) {
  GraphBuilder& b = c.b;
  const std::string_view reduce = c.text("reduce", "");
  const std::optional<Combine> combine = combine_named(reduce);
  const bool include_self = c.flag("include_self", true);
  const ScatterArguments a = scatter_arguments(c, "src");
  if (!c.ok()) return {};
  if (!combine) return {c.invalid("there is no way to reduce named '" + std::string(reduce) + "'")};
  const Expr x{&b, a.x}, updates{&b, a.updates};
  const auto combined = [&](Expr to, Expr what, Combine how) {
    return Expr{&b, scatter_along(b, to.id, a.axis, a.index, what.id, how)};
  };
  Expr start = x;
  if (!include_self) start = combined(x, neutral(updates, *combine), Combine::kSet);
  Expr result = combined(start, updates, *combine);
  if (reduce == "mean") {
    const Expr from = include_self ? x.like(1) : x.like(0);
    const Expr count = max(combined(from, updates.like(1), Combine::kAdd), 1);
    if (is_float(x.dtype())) {
      result = result / count;
    } else {
      const Expr quotient = result / count, rest = result - quotient * count;
      result = choose(rest < 0, quotient - 1, quotient);
    }
  }
  return as_self(c, result.id);
}

// The axes that the indices name, and the indices broadcast to one shape.
struct IndexedAxes {
  std::vector<int> axes;
  std::vector<NodeId> indices;
  Shape shape;
  bool masks = false;
};
IndexedAxes indexed_axes(Call& c) {
  IndexedAxes result;
  const std::vector<NodeId> given = c.optional_tensors("indices");
  for (size_t i = 0; i < given.size() && c.ok(); ++i) {
    if (given[i] == kInvalidNode) continue;
    const DType type = c.b.dtype(given[i]);
    result.masks = result.masks || type == DType::kBool || type == DType::kU8;
    result.axes.push_back(static_cast<int>(i));
    result.indices.push_back(given[i]);
  }
  if (result.masks) return result;
  for (const NodeId index : result.indices)
    result.shape = broadcast_shapes(c.b, result.shape, c.b.shape(index));
  for (NodeId& index : result.indices) index = c.b.broadcast(index, result.shape);
  return result;
}

// x[mask] = values, where the values do not depend on how many places there are.
Values put_where(Call& c, NodeId self, const IndexedAxes& where, Expr values, bool accumulate) {
  GraphBuilder& b = c.b;
  const Expr x{&b, self};
  const size_t first = at(where.axes[0]);
  Shape mask = b.shape(where.indices[0]);
  if (where.indices.size() != 1 || first + mask.size() > x.shape().size())
    return {c.unsupported("writing by several masks is not covered; combine them into one")};
  const size_t rank = mask.size(), rest = x.shape().size() - first - rank;
  Shape value = values.shape();
  // [1, rest...] says the same as [rest...].
  if (value.size() == rest + 1 && value[0].is(1)) value.erase(value.begin());
  if (value.size() > rest)
    return {
        c.unsupported("writing as many values as a mask has places is not covered: their number "
                      "depends on the data; use where with a tensor of the full shape")};
  mask.insert(mask.end(), rest, Dim(1));
  const Expr condition = Expr{&b, b.cast(where.indices[0], DType::kBool)}.reshape(mask);
  const Expr v = values.reshape(value).cast(x.dtype());
  return {choose(condition, accumulate ? x + v : v, x).broadcast(x.shape()).id};
}

Values index_put(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self"), values = c.tensor("values");
  const bool accumulate = c.flag("accumulate", false);
  const IndexedAxes where = indexed_axes(c);
  if (!c.ok()) return {};
  if (where.axes.empty() || at(where.axes.back()) >= b.shape(x).size())
    return {c.invalid("index_put needs indices, no more than axes")};
  if (where.masks) return put_where(c, x, where, {&b, values}, accumulate);
  const size_t rank = where.shape.size();
  if (!accumulate && where.axes.size() == 1 && numel(where.shape).is(1)) {
    Shape read = b.shape(x);
    read.erase(read.begin() + where.axes[0]);
    read.insert(read.begin() + where.axes[0], rank, Dim(1));
    const NodeId rows = b.broadcast(b.cast(values, b.dtype(x)), std::move(read));
    return {set_one(b, x, where.axes[0], where.indices[0], rows)};
  }
  // The indexed axes first and flat: rows, which the indices name.
  const NodeId front = move_to_front(b, x, where.axes);
  const Shape moved = b.shape(front);
  const size_t count = where.axes.size();
  const Shape lead(moved.begin(), moved.begin() + static_cast<std::ptrdiff_t>(count));
  const Shape row(moved.begin() + static_cast<std::ptrdiff_t>(count), moved.end());
  // Values have the shape that reading there gives: the indices' axes in place of adjacent indexed
  // ones, else in front.
  const bool adjacent = where.axes.back() - where.axes.front() + 1 == static_cast<int>(count);
  const size_t before = adjacent ? at(where.axes.front()) : 0;
  Shape read = row;
  read.insert(read.begin() + static_cast<std::ptrdiff_t>(before), where.shape.begin(),
              where.shape.end());
  NodeId updates = b.broadcast(b.cast(values, b.dtype(x)), read);
  std::vector<int> index_axes;
  for (size_t i = 0; i < rank; ++i) index_axes.push_back(static_cast<int>(before + i));
  updates = move_to_front(b, updates, index_axes);
  Shape flat = row;
  flat.insert(flat.begin(), numel(lead));
  const NodeId linear = linear_index(b, lead, where.indices);
  const NodeId result = b.scatter(b.reshape(front, flat), linear, updates,
                                  accumulate ? Combine::kAdd : Combine::kSet);
  return {move_from_front(b, b.reshape(result, moved), where.axes)};
}

// Rows along an axis, as a vector of indices names them.
NodeId scatter_axis(Call& c, NodeId x, int axis, NodeId index, NodeId rows, Combine combine) {
  GraphBuilder& b = c.b;
  if (!c.ok() || b.shape(x).empty()) return c.unsupported("an indexed scalar is not covered");
  if (combine == Combine::kSet && numel(b.shape(index)).is(1))
    return set_one(b, x, axis, index, rows);
  if (b.shape(index).empty()) index = b.reshape(index, {1});
  return move_from_front(b,
                         b.scatter(move_to_front(b, x, {axis}), b.cast(index, DType::kI64),
                                   move_to_front(b, rows, {axis}), combine),
                         {axis});
}

template <Combine combine>
Values index_rows(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self"), index = c.tensor("index");
  Expr source = tensor(c, "source");
  const int axis = c.axis("dim", b.shape(x).size());
  const double alpha = c.real("alpha", 1);
  if (!c.ok()) return {};
  source = source.cast(b.dtype(x));
  if (alpha != 1) source = source * alpha;
  return {scatter_axis(c, x, axis, index, source.id, combine)};
}

Values index_fill(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self"), index = c.tensor("index");
  const int axis = c.axis("dim", b.shape(x).size());
  const Operand value = c.operand("value");
  if (!c.ok() || b.shape(x).empty())
    return {c.unsupported("index_fill of a scalar is not covered")};
  Shape shape = b.shape(x);
  shape[at(axis)] = numel(b.shape(index));
  return {scatter_axis(c, x, axis, index, materialise(b, value, b.dtype(x), shape), Combine::kSet)};
}

Values index_reduce(Call& c) {
  const std::optional<Combine> combine = combine_named(c.text("reduce", ""));
  const NodeId x = c.tensor("self"), index = c.tensor("index"), source = c.tensor("source");
  const int axis = c.axis("dim", c.b.shape(x).size());
  if (!combine || c.text("reduce", "") == "mean" || !c.flag("include_self", true))
    return {c.unsupported("index_reduce by mean or without self is not covered")};
  return {scatter_axis(c, x, axis, index, source, *combine)};
}

// x with `part` in place of the elements start, start + step, ... along an axis.
NodeId replace_slice(Call& c, NodeId x, NodeId part, int axis, const Dim& start, int64_t step) {
  GraphBuilder& b = c.b;
  const Shape shape = b.shape(x);
  if (!c.ok()) return kInvalidNode;
  part = b.cast(part, b.dtype(x));
  const Dim& size = shape[at(axis)];
  const Dim count = b.shape(part)[at(axis)];
  if (step == 1) {
    const Dim end = start + count;
    std::vector<NodeId> pieces;
    if (!start.is(0)) pieces.push_back(b.slice(x, axis, 0, start));
    pieces.push_back(part);
    if (end != size) pieces.push_back(b.slice(x, axis, end, size - end));
    return b.concat(pieces, axis);
  }
  const Expr places{&b, b.iota(DType::kI64, count)};
  const Expr first{&b, size_value(b, start, DType::kI64)};
  return scatter_axis(c, x, axis, (places * static_cast<double>(step) + first).id, part,
                      Combine::kSet);
}

Values slice_scatter(Call& c) {
  const NodeId x = c.tensor("self"), source = c.tensor("src");
  const Shape& shape = c.b.shape(x);
  const int axis = c.axis("dim", shape.size(), 0);
  if (!c.ok() || shape.empty()) return {c.invalid("a scalar cannot be sliced")};
  const Dim start = slice_bound(c, c.size("start", Dim(0)), shape[at(axis)]);
  return {replace_slice(c, x, source, axis, start, c.integer("step", 1))};
}
Values select_scatter(Call& c) {
  const NodeId x = c.tensor("self"), source = c.tensor("src");
  Shape shape = c.b.shape(x);
  const int axis = c.axis("dim", shape.size());
  if (!c.ok() || shape.empty()) return {c.invalid("a scalar has no elements to select")};
  Dim index = c.size("index");
  if (index.is_constant() && index.constant() < 0) index = index + shape[at(axis)];
  shape[at(axis)] = 1;
  return {replace_slice(c, x, c.b.reshape(source, shape), axis, index, 1)};
}
Values diagonal_scatter(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self"), source = c.tensor("src");
  const Shape shape = b.shape(x);
  const int first = c.axis("dim1", shape.size(), 0), second = c.axis("dim2", shape.size(), 1);
  const NodeId positions = b.reshape(b.iota(DType::kI64, numel(shape)), shape);
  const NodeId places = diagonal_of(c, positions, c.integer("offset", 0), first, second);
  if (!c.ok()) return {};
  const Shape count = {numel(b.shape(places))};
  const NodeId result = b.scatter(b.reshape(x, {numel(shape)}), b.reshape(places, count),
                                  b.reshape(b.cast(source, b.dtype(x)), count), Combine::kSet);
  return {b.reshape(result, shape)};
}

// The gradient of an embedding: rows of the output's gradient added up by index.
Values embedding_dense_backward(Call& c) {
  GraphBuilder& b = c.b;
  const Expr grad = tensor(c, "grad_output");
  const NodeId indices = b.cast(c.tensor("indices"), DType::kI64);
  const Dim rows = c.size("num_weights");
  const int64_t padding = c.integer("padding_idx", -1);
  if (c.flag("scale_grad_by_freq", false))
    return {c.unsupported("scale_grad_by_freq is not covered")};
  if (!c.ok() || grad.shape().empty()) return {c.invalid("needs a gradient of rows")};
  const DType type = grad.dtype(), compute = compute_type(type);
  Expr updates = grad.cast(compute);
  if (padding >= 0) {
    Shape column = b.shape(indices);
    column.emplace_back(1);
    const Expr index{&b, indices};
    updates = choose((index == static_cast<double>(padding)).reshape(column), 0, updates);
  }
  const Dim width = grad.shape().back();
  const NodeId zero = b.broadcast(scalar(b, compute, to_number(int64_t{0})), {rows, width});
  return {b.cast(b.scatter(zero, indices, updates.id, Combine::kAdd), type)};
}

constexpr Lowering kScatterLowerings[] = {
    {"aten.scatter.src", scatter<Combine::kSet>},
    {"aten.scatter.value", scatter_value},
    {"aten.scatter.reduce", scatter_combine},
    {"aten.scatter.value_reduce", scatter_combine},
    {"aten.scatter_add.default", scatter<Combine::kAdd>},
    {"aten.scatter_reduce.two", scatter_reduce},
    {"aten.index_put.default", index_put},
    {"aten._unsafe_index_put.default", index_put},
    {"aten.index_add.default", index_rows<Combine::kAdd>},
    {"aten.index_copy.default", index_rows<Combine::kSet>},
    {"aten.index_fill.int_Scalar", index_fill},
    {"aten.index_fill.int_Tensor", index_fill},
    {"aten.index_reduce.default", index_reduce},
    {"aten.slice_scatter.default", slice_scatter},
    {"aten.select_scatter.default", select_scatter},
    {"aten.diagonal_scatter.default", diagonal_scatter},
    {"aten.embedding_dense_backward.default", embedding_dense_backward},
};

}  // namespace

std::span<const Lowering> scatter_lowerings() {
  return kScatterLowerings;
}

}  // namespace kiln
