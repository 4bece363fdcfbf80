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

// beta * self + alpha * (x @ y).
Values add_product(Call& c, std::string_view self, std::string_view x_name, std::string_view y_name,
                   size_t rank) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor(x_name), y = c.tensor(y_name), bias = c.tensor(self);
  if (!c.ok()) return {};
  if (b.shape(x).size() != rank || b.shape(y).size() != rank)
    return {c.invalid("needs operands of rank " + std::to_string(rank))};
  const NodeId product = scaled(c, "alpha", matrix_product(b, x, y));
  const DType compute = compute_type(b.dtype(x));
  const NodeId addend = scaled(c, "beta", b.cast(bias, compute));
  return {b.cast(b.binary(Op::kAdd, product, b.broadcast(addend, b.shape(product))), b.dtype(x))};
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
  NodeId x = c.tensor("input");
  const NodeId weight = c.tensor("weight"), bias = c.optional_tensor("bias");
  if (!c.ok()) return {};
  Shape shape = b.shape(x);
  if (shape.empty() || b.shape(weight).size() != 2)
    return {c.unsupported("linear with a weight that is not a matrix is not covered")};
  const DType type = b.dtype(x);
  // All rows as one matrix, and the bias on its accumulator: what addmm is.
  const Dim width = shape.back();
  shape.pop_back();
  x = b.reshape(x, {numel(shape), width});
  NodeId product = b.matmul(x, swap_axes(b, weight, 0, 1));
  if (bias != kInvalidNode)
    product =
        b.binary(Op::kAdd, product, b.broadcast(b.cast(bias, b.dtype(product)), b.shape(product)));
  shape.push_back(b.shape(weight)[0]);
  return {b.reshape(b.cast(product, type), shape)};
}

constexpr Lowering kLowerings[] = {
    {"aten.linear.default", linear},
    {"aten.matmul.default", matmul},
    {"aten.mv.default", matmul},
    {"aten.dot.default", matmul},
    {"aten.mm.default", product_of_rank<2>},
    {"aten.bmm.default", product_of_rank<3>},
    {"aten.addmm.default", addmm},
    {"aten.baddbmm.default", baddbmm},
};

}  // namespace

std::span<const Lowering> matmul_lowerings() {
  return kLowerings;
}

}  // namespace kiln
