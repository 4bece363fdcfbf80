// Products and norms of matrices beyond matmul, as PyTorch's composites define them: Kronecker and
// cross products, contractions, chains, norms, statistics of rows.
#include <algorithm>
#include <cmath>

#include "compiler_core/frontend/decompositions.h"
#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

int last_axis(Expr x) {
  return static_cast<int>(x.shape().size()) - 1;
}
DType common_type(GraphBuilder& b, const std::vector<NodeId>& xs) {
  std::vector<Operand> operands;
  for (const NodeId x : xs) operands.push_back({x, {}});
  return result_type(b, operands);
}
// Every axis of the result is one of x with the same of y inside.
Values kron(Call& c) {
  const Expr x = tensor(c, "self"), y = tensor(c, "other");
  if (!c.ok()) return {};
  const DType type = common_type(c.b, {x.id, y.id});
  Shape outer = x.shape(), inner = y.shape();
  outer.insert(outer.begin(), std::max(inner.size(), outer.size()) - outer.size(), Dim(1));
  inner.insert(inner.begin(), outer.size() - inner.size(), Dim(1));
  Shape left, right, result;
  for (size_t i = 0; i < outer.size(); ++i) {
    left.insert(left.end(), {outer[i], 1});
    right.insert(right.end(), {1, inner[i]});
    result.push_back(outer[i] * inner[i]);
  }
  return {(x.cast(type).reshape(left) * y.cast(type).reshape(right)).reshape(result).id};
}

// The sum over pairs of axes, as one matrix product.
NodeId contracted(Call& c, NodeId x, NodeId y, const std::vector<int>& of_x,
                  const std::vector<int>& of_y) {
  GraphBuilder& b = c.b;
  if (!c.ok()) return kInvalidNode;
  const DType type = b.dtype(x);
  const NodeId left = move_to_front(b, x, of_x), right = move_to_front(b, y, of_y);
  const Shape from = b.shape(left), to = b.shape(right);
  const auto inner = static_cast<std::ptrdiff_t>(of_x.size());
  if (of_x.size() != of_y.size() || !std::equal(from.begin(), from.begin() + inner, to.begin()))
    return c.invalid("contracts axes that do not pair up");
  const Dim k = numel(Shape(from.begin(), from.begin() + inner));
  Shape result(from.begin() + inner, from.end());
  const Dim rows = numel(result), columns = numel(Shape(to.begin() + inner, to.end()));
  result.insert(result.end(), to.begin() + inner, to.end());
  const NodeId product =
      b.matmul(swap_axes(b, b.reshape(left, {k, rows}), 0, 1), b.reshape(right, {k, columns}));
  return b.cast(b.reshape(product, result), type);
}
Values tensordot(Call& c) {
  const NodeId x = c.tensor("self"), y = c.tensor("other");
  const std::vector<int> of_x = c.listed_axes("dims_self", c.b.shape(x).size());
  const std::vector<int> of_y = c.listed_axes("dims_other", c.b.shape(y).size());
  return {contracted(c, x, y, of_x, of_y)};
}
// Along the last axes; a scalar scales.
Values inner(Call& c) {
  const Expr x = tensor(c, "self"), y = tensor(c, "other");
  if (!c.ok()) return {};
  if (x.shape().empty() || y.shape().empty()) return {(x * y).id};
  return {contracted(c, x.id, y.id, {last_axis(x)}, {last_axis(y)})};
}

// Along an axis of three. Without one given, aten.cross takes the first such one, linalg.cross the
// last axis.
template <bool last_by_default>
Values cross(Call& c) {
  Expr x = tensor(c, "self"), y = tensor(c, "other");
  if (!c.ok()) return {};
  const Shape shape = broadcast_shapes(c.b, x.shape(), y.shape());
  x = x.broadcast(shape);
  y = y.broadcast(shape);
  const auto three = std::find(shape.begin(), shape.end(), Dim(3));
  const int axis = c.has("dim") || last_by_default ? c.axis("dim", shape.size(), -1)
                                                   : static_cast<int>(three - shape.begin());
  if (!c.ok() || at(axis) >= shape.size() || !shape[at(axis)].is(3))
    return {c.invalid("a cross product needs an axis of size 3")};
  std::vector<NodeId> parts;
  for (int i = 0; i < 3; ++i) {
    const int next = (i + 1) % 3, after = (i + 2) % 3;
    parts.push_back((x.slice(axis, next, 1) * y.slice(axis, after, 1) -
                     x.slice(axis, after, 1) * y.slice(axis, next, 1))
                        .id);
  }
  return {c.b.concat(parts, axis)};
}

Values vecdot(Call& c) {
  const Expr x = tensor(c, "x"), y = tensor(c, "y");
  if (!c.ok()) return {};
  const DType type = common_type(c.b, {x.id, y.id}), compute = compute_type(type);
  const Expr product = x.cast(compute) * y.cast(compute);
  const int axis = c.axis("dim", product.shape().size(), -1);
  if (!c.ok() || product.shape().empty()) return {c.invalid("vecdot of scalars")};
  return {product.sum({axis}, false).cast(type).id};
}

Values linalg_diagonal(Call& c) {
  const NodeId x = c.tensor("A");
  const size_t rank = c.b.shape(x).size();
  return {diagonal_of(c, x, c.integer("offset", 0), c.axis("dim1", rank, -2),
                      c.axis("dim2", rank, -1))};
}

// Matrices one after the other; the first may be a row, the last a column.
Values chain(Call& c) {
  GraphBuilder& b = c.b;
  const std::vector<NodeId> xs = c.tensors(c.has("matrices") ? "matrices" : "tensors");
  if (!c.ok() || xs.empty()) return {c.invalid("a product of no matrices")};
  const Shape first = b.shape(xs.front()), last = b.shape(xs.back());
  NodeId product = xs.front();
  if (first.size() == 1) product = b.reshape(product, {1, first[0]});
  for (size_t i = 1; i < xs.size() && c.ok(); ++i) {
    const bool column = i + 1 == xs.size() && last.size() == 1;
    const NodeId next = column ? b.reshape(xs[i], {last[0], 1}) : xs[i];
    product = b.cast(matrix_product(b, product, next), b.dtype(xs[0]));
  }
  if (!c.ok() || xs.size() == 1) return {xs.front()};
  Shape shape = b.shape(product);
  if (last.size() == 1) shape.pop_back();
  if (first.size() == 1) shape.erase(shape.begin());
  return {b.reshape(product, shape)};
}

Values matrix_power(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self");
  int64_t n = c.integer("n");
  const Shape shape = b.shape(x);
  if (n < 0) return {c.unsupported("a negative power needs an inverse, which is not covered")};
  if (!c.ok() || shape.size() < 2 || shape.back() != shape[shape.size() - 2])
    return {c.invalid("the power of what is no square matrix")};
  const auto times = [&](NodeId left, NodeId right) {
    return b.cast(matrix_product(b, left, right), b.dtype(x));
  };
  NodeId result = kInvalidNode;
  for (NodeId square = x; n > 0 && c.ok(); n /= 2) {
    if (n % 2 == 1) result = result == kInvalidNode ? square : times(result, square);
    if (n > 1) square = times(square, square);
  }
  if (result != kInvalidNode) return {result};
  const size_t rank = shape.size();
  return {b.cast(b.binary(Op::kEq, coordinate(b, shape, rank - 2), coordinate(b, shape, rank - 1)),
                 b.dtype(x))};
}

// Matrices in the corners of one, zeros elsewhere.
Values block_diag(Call& c) {
  GraphBuilder& b = c.b;
  std::vector<NodeId> blocks = c.tensors("tensors");
  if (!c.ok() || blocks.empty()) return {c.invalid("a matrix of no blocks")};
  const DType type = common_type(b, blocks);
  Dim width = 0, before = 0;
  for (NodeId& block : blocks) {
    Shape shape = b.shape(block);
    if (shape.size() > 2) return {c.invalid("a block that is no matrix")};
    while (shape.size() < 2) shape.insert(shape.begin(), Dim(1));
    block = b.reshape(b.cast(block, type), shape);
    width = width + shape[1];
  }
  for (NodeId& block : blocks) {
    const Dim own = b.shape(block)[1];
    block = b.pad(block, {0, before}, {0, width - before - own}, constant_bits(type, 0));
    before = before + own;
  }
  return {b.concat(blocks, 0)};
}

// Sums of rows or columns for 1 and infinity, the root of all squares for the Frobenius norm.
NodeId norm_of_matrix(Call& c, Expr x, std::optional<double> order, int rows, int columns,
                      bool keep) {
  if (!order) return p_norm(x, 2, {std::min(rows, columns), std::max(rows, columns)}, keep).id;
  const bool by_rows = std::isinf(*order);
  if (std::abs(*order) != 1 && !by_rows)
    return c.unsupported("a norm of singular values is not covered");
  const int summed = by_rows ? columns : rows, other = by_rows ? rows : columns;
  const Expr sums = abs(x).sum({summed});
  const NodeId norm =
      c.b.reduce(*order > 0 ? Op::kReduceMax : Op::kReduceMin, sums.id, {other}, true);
  if (keep || !c.ok()) return norm;
  Shape shape = x.shape();
  shape.erase(shape.begin() + std::max(rows, columns));
  shape.erase(shape.begin() + std::min(rows, columns));
  return c.b.reshape(norm, shape);
}

// The order of a norm: nothing for the Frobenius norm.
std::optional<double> order_of(Call& c) {
  if (!c.has("ord")) return std::nullopt;
  const std::string_view name = c.text("ord", "");
  if (name == "fro") return std::nullopt;
  c.unsupported("the norm '" + std::string(name) + "' is not covered");
  return std::nullopt;
}
template <bool named>
Values matrix_norm(Call& c) {
  const Expr x = tensor(c, "self");
  const size_t rank = x.shape().size();
  const DType type = c.dtype("dtype", to_float_type(x.dtype()));
  std::vector<int> axes = {static_cast<int>(rank) - 2, static_cast<int>(rank) - 1};
  if (c.has("dim")) axes = c.listed_axes("dim", rank);
  std::optional<double> order;
  if constexpr (named)
    order = order_of(c);
  else
    order = c.real("ord", 2);
  if (!c.ok() || rank < 2 || axes.size() != 2) return {c.invalid("the norm of what is no matrix")};
  const Expr value = x.cast(compute_type(type));
  const NodeId norm = norm_of_matrix(c, value, order, axes[0], axes[1], c.flag("keepdim", false));
  return {c.b.cast(norm, type)};
}
// The norm of vectors (one axis, or no order) or of matrices (two axes).
Values linalg_norm(Call& c) {
  const Expr x = tensor(c, "self");
  const size_t rank = x.shape().size();
  const bool keep = c.flag("keepdim", false);
  const DType type = c.dtype("dtype", to_float_type(x.dtype()));
  std::vector<int> given;
  if (c.has("dim")) given = c.listed_axes("dim", rank);
  if (!c.ok()) return {};
  const std::vector<int> axes = given.empty() ? c.axes("dim", rank) : given;
  const Expr value = x.cast(compute_type(type));
  if (!c.has("ord") || axes.size() == 1) {
    const double order = c.real("ord", 2);
    std::vector<int> sorted = axes;
    std::sort(sorted.begin(), sorted.end());
    return {p_norm(value, order, sorted, keep).cast(type).id};
  }
  if (axes.size() != 2) return {c.invalid("a norm of an order has one axis, or two")};
  return {c.b.cast(norm_of_matrix(c, value, c.real("ord"), axes[0], axes[1], keep), type)};
}

// Powers 0, 1, ... of each element, along a new last axis.
Expr powers(Expr x, const Dim& count, bool increasing) {
  GraphBuilder& b = *x.b;
  Shape column = x.shape(), shape = x.shape();
  column.emplace_back(1);
  shape.push_back(count);
  Expr exponent = Expr{&b, coordinate(b, shape, shape.size() - 1)};
  if (!increasing) exponent = Expr{&b, size_value(b, count, DType::kI64)} - 1 - exponent;
  return apply(Op::kPow, x.reshape(column).broadcast(shape), exponent.cast(x.dtype()));
}
Values vander(Call& c) {
  const Expr x = tensor(c, "x");
  if (!c.ok() || x.shape().empty()) return {c.invalid("powers of a scalar")};
  const DType type = is_float(x.dtype()) ? x.dtype() : DType::kI64;
  const Dim count = c.size("N", x.shape().back());
  const bool increasing = c.flag("increasing", false);
  return {powers(x.cast(compute_type(type)), count, increasing).cast(type).id};
}
Values linalg_vander(Call& c) {
  const Expr x = tensor(c, "x");
  if (!c.ok() || x.shape().empty()) return {c.invalid("powers of a scalar")};
  const DType type = is_float(x.dtype()) ? x.dtype() : DType::kI64;
  return {powers(x.cast(compute_type(type)), c.size("N", x.shape().back()), true).cast(type).id};
}

// Covariances of the rows of [variables, observations].
Expr covariance(Call& c, Expr x, int64_t correction) {
  GraphBuilder& b = c.b;
  if (x.shape().size() == 1) x = x.reshape({1, x.shape()[0]});
  const Dim count = x.shape()[1];
  const Expr centred = x - Expr{&b, mean(b, x.id, {1})};
  const Expr products{&b, b.matmul(centred.id, swap_axes(b, centred.id, 0, 1))};
  return products / max(Expr{&b, size_value(b, count - Dim(correction), x.dtype())}, 0);
}
template <bool normalised>
Values covariances(Call& c) {
  GraphBuilder& b = c.b;
  const Expr x = tensor(c, "self");
  if (!c.ok() || x.shape().empty() || x.shape().size() > 2)
    return {c.invalid("covariances of what is no matrix")};
  if (c.has("fweights") || c.has("aweights"))
    return {c.unsupported("covariances with weights are not covered")};
  Expr result = covariance(c, wide(x), c.integer("correction", 1));
  if (!c.ok()) return {};
  if constexpr (normalised) {
    const Dim n = result.shape()[0];
    // Written as a mask, because the number of rows may be symbolic.
    const Expr here = Expr{&b, coordinate(b, {n, n}, 0)} == Expr{&b, coordinate(b, {n, n}, 1)};
    const Expr deviation = sqrt(choose(here, result, 0).sum({1}));
    result = result / deviation / deviation.reshape({1, n});
    result = min(max(result, -1), 1);
  }
  if (x.shape().size() == 1) result = result.reshape({});
  return {result.cast(to_float_type(x.dtype())).id};
}

constexpr Lowering kLinearAlgebraLowerings[] = {
    {"aten.kron.default", kron},
    {"aten.tensordot.default", tensordot},
    {"aten.inner.default", inner},
    {"aten.cross.default", cross<false>},
    {"aten.linalg_cross.default", cross<true>},
    {"aten.linalg_vecdot.default", vecdot},
    {"aten.linalg_diagonal.default", linalg_diagonal},
    {"aten.chain_matmul.default", chain},
    {"aten.linalg_multi_dot.default", chain},
    {"aten.matrix_power.default", matrix_power},
    {"aten.linalg_matrix_power.default", matrix_power},
    {"aten.block_diag.default", block_diag},
    {"aten.linalg_matrix_norm.default", matrix_norm<false>},
    {"aten.linalg_matrix_norm.str_ord", matrix_norm<true>},
    {"aten.linalg_norm.default", linalg_norm},
    {"aten.vander.default", vander},
    {"aten.linalg_vander.default", linalg_vander},
    {"aten.cov.default", covariances<false>},
    {"aten.corrcoef.default", covariances<true>},
};

}  // namespace

std::span<const Lowering> linear_algebra_lowerings() {
  return kLinearAlgebraLowerings;
}

}  // namespace kiln
