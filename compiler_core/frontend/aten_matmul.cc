// Matrix products. The accumulator has the compute type; bias and scaling happen there, and the
// result is rounded once.
#include "compiler_core/frontend/decompositions.h"

namespace kiln {
namespace {

// a * x, where a is a number.
NodeId scaled(Call& c, std::string_view factor, NodeId x) {
  if (!c.has(factor)) return x;
  const Number number = c.number(factor);
  if (number.value == 1 && number.integer.is_constant()) return x;
  return c.b.binary(Op::kMul, x, c.b.broadcast(scalar(c.b, c.b.dtype(x), number), c.b.shape(x)));
}

// `product` * alpha + `addend` * beta. A beta of 0 leaves the addend out, with its NaNs, as torch does.
NodeId plus_scaled(Call& c, NodeId product, NodeId addend) {
  GraphBuilder& b = c.b;
  product = scaled(c, "alpha", product);
  if (c.has("beta")) {
    const Number beta = c.number("beta");
    if (beta.value == 0 && beta.integer.is_constant()) return product;
  }
  const NodeId scaled_addend = scaled(c, "beta", b.cast(addend, b.dtype(product)));
  return b.binary(Op::kAdd, product, b.broadcast(scaled_addend, b.shape(product)));
}

// beta * self + alpha * (x @ y).
Values add_product(Call& c, std::string_view self, std::string_view x_name, std::string_view y_name,
                   size_t rank) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor(x_name), y = c.tensor(y_name), bias = c.tensor(self);
  if (!c.ok()) return {};
  if (b.shape(x).size() != rank || b.shape(y).size() != rank)
    return {c.invalid("needs operands of rank " + std::to_string(rank))};
  return {b.cast(plus_scaled(c, matrix_product(b, x, y), bias), b.dtype(x))};
}
Values addmm(Call& c) {
  return add_product(c, "self", "mat1", "mat2", 2);
}
Values baddbmm(Call& c) {
  return add_product(c, "self", "batch1", "batch2", 3);
}

template <size_t rank>
Values product_of_rank(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self"), y = c.tensor("mat2");
  if (!c.ok()) return {};
  if (b.shape(x).size() != rank || b.shape(y).size() != rank)
    return {c.invalid("needs operands of rank " + std::to_string(rank))};
  return {b.cast(matrix_product(b, x, y), b.dtype(x))};
}

// A vector is a row on the left and a column on the right.
Values matmul(Call& c) {
  GraphBuilder& b = c.b;
  NodeId x = c.tensor("self"), y = c.tensor(c.has("other") ? "other"
                                            : c.has("vec") ? "vec"
                                                           : "tensor");
  if (!c.ok()) return {};
  const Shape from = b.shape(x), to = b.shape(y);
  if (from.empty() || to.empty()) return {c.invalid("a matrix product of a scalar")};
  const DType type = b.dtype(x);
  const bool row = from.size() == 1, column = to.size() == 1;
  if (row) x = b.reshape(x, {1, from[0]});
  if (column) y = b.reshape(y, {to[0], 1});
  NodeId product = matrix_product(b, x, y);
  if (!c.ok()) return {};
  Shape shape = b.shape(product);
  if (column) shape.pop_back();
  if (row) shape.erase(shape.end() - (column ? 1 : 2));
  product = b.reshape(product, shape);
  return {b.cast(product, type)};
}

Values linear(Call& c) {
  GraphBuilder& b = c.b;
  NodeId x = c.tensor("input"), weight = c.tensor("weight");
  const NodeId bias = c.optional_tensor("bias");
  if (!c.ok()) return {};
  // A vector of weights is one row, whose axis goes.
  const bool row = b.shape(weight).size() == 1;
  if (row) weight = b.reshape(weight, {1, b.shape(weight)[0]});
  if (b.shape(x).empty() || b.shape(weight).size() != 2)
    return {c.unsupported("linear with a weight that is not a matrix is not covered")};
  const NodeId result = linear_of(b, x, weight, bias);
  if (!row || !c.ok()) return {result};
  Shape shape = b.shape(result);
  shape.pop_back();
  return {b.reshape(result, shape)};
}

// beta * self + alpha * (x @ vec), and the sum of all batches' products for addbmm.
Values addmv(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("mat"), v = c.tensor("vec"), bias = c.tensor("self");
  if (!c.ok() || b.shape(x).size() != 2 || b.shape(v).size() != 1)
    return {c.invalid("needs a matrix and a vector")};
  const Dim rows = b.shape(x)[0];
  const NodeId product = b.reshape(b.matmul(x, b.reshape(v, {b.shape(v)[0], 1})), {rows});
  return {b.cast(plus_scaled(c, product, bias), b.dtype(x))};
}
Values addbmm(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("batch1"), y = c.tensor("batch2"), bias = c.tensor("self");
  if (!c.ok() || b.shape(x).size() != 3 || b.shape(y).size() != 3)
    return {c.invalid("needs operands of rank 3")};
  const NodeId sum = b.reduce(Op::kReduceSum, b.matmul(x, y), {0});
  return {b.cast(plus_scaled(c, sum, bias), b.dtype(x))};
}

// The product of every pair: x as a column, y as a row.
NodeId outer_product(Call& c, NodeId x, NodeId y) {
  GraphBuilder& b = c.b;
  if (!c.ok() || b.shape(x).size() != 1 || b.shape(y).size() != 1)
    return c.invalid("needs two vectors");
  const Operand both[] = {{x, {}}, {y, {}}};
  const DType type = result_type(b, both);
  const Shape shape = {b.shape(x)[0], b.shape(y)[0]};
  const NodeId column = b.broadcast(b.reshape(b.cast(x, type), {shape[0], 1}), shape);
  return b.binary(Op::kMul, column, b.broadcast(b.cast(y, type), shape));
}
Values outer(Call& c) {
  const NodeId x = c.tensor("self"), y = c.tensor("vec2");
  return {outer_product(c, x, y)};
}
Values addr(Call& c) {
  const NodeId x = c.tensor("vec1"), y = c.tensor("vec2"), bias = c.tensor("self");
  return {plus_scaled(c, outer_product(c, x, y), bias)};
}

// out[n, o] = x[n, i] weight[o, i, j] y[n, j] + bias[o]
Values bilinear(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("input1"), y = c.tensor("input2"), weight = c.tensor("weight");
  const NodeId bias = c.optional_tensor("bias");
  if (!c.ok() || b.shape(weight).size() != 3 || b.shape(x).empty() || b.shape(y).empty())
    return {c.invalid("bilinear needs a weight of rank 3")};
  const DType type = b.dtype(x), compute = compute_type(type);
  Shape rows = b.shape(x);
  rows.pop_back();
  const Dim count = numel(rows), in = b.shape(x).back(), out = b.shape(weight)[0],
            other = b.shape(weight)[2];
  // [n, i] x [i, o*j], then against y along j.
  const NodeId flat = b.reshape(b.permute(weight, {1, 0, 2}), {in, out * other});
  const NodeId partial = b.reshape(b.matmul(b.reshape(x, {count, in}), flat), {count, out, other});
  const NodeId right =
      b.broadcast(b.cast(b.reshape(y, {count, 1, other}), compute), {count, out, other});
  NodeId result = b.reduce(Op::kReduceSum, b.binary(Op::kMul, partial, right), {2});
  if (bias != kInvalidNode)
    result = b.binary(Op::kAdd, result, b.broadcast(b.cast(bias, compute), b.shape(result)));
  rows.push_back(out);
  return {b.cast(b.reshape(result, rows), type)};
}

constexpr Lowering kMatmulLowerings[] = {
    {"aten.linear.default", linear},
    {"aten.matmul.default", matmul},
    {"aten.mv.default", matmul},
    {"aten.dot.default", matmul},
    {"aten.mm.default", product_of_rank<2>},
    {"aten.bmm.default", product_of_rank<3>},
    {"aten.addmm.default", addmm},
    {"aten.baddbmm.default", baddbmm},
    {"aten.addmv.default", addmv},
    {"aten.addbmm.default", addbmm},
    {"aten.outer.default", outer},
    {"aten.ger.default", outer},
    {"aten.addr.default", addr},
    {"aten.bilinear.default", bilinear},
    {"aten.linalg_matmul.default", matmul},
    {"aten.vdot.default", matmul},
};

}  // namespace

std::span<const Lowering> matmul_lowerings() {
  return kMatmulLowerings;
}

}  // namespace kiln
