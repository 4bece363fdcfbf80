// Decompositions: what composite operations mean in core ops, for the lowerings that share them.
// They follow ATen's CPU kernels: half types are computed in f32 and rounded once at the end.
//
// A builder's shape() is a reference that the next node may move: what makes nodes takes shapes by
// value.
#pragma once

#include <span>
#include <vector>

#include "compiler_core/frontend/lowering.h"

namespace kiln {

// An axis that is there, as the index of a shape's element.
inline size_t at(int axis) {
  return static_cast<size_t>(axis);
}

// The dtype of a number that meets no tensor: that of a float is f32, the default.
DType dtype_of(const Number& number);
// PyTorch's type promotion.
DType promote_types(DType a, DType b);
// The type promotion of tensors, scalars (rank 0) and Python numbers together: numbers and scalars
// change the result only when they are of a higher kind (bool < integer < float).
DType result_type(const GraphBuilder& b, std::span<const Operand> operands);
// f32 for integers and bool: what sin() of an integer tensor gives.
DType to_float_type(DType dtype);

// The shape both broadcast to.
Shape broadcast_shapes(GraphBuilder& b, const Shape& x, const Shape& y);
// `operand` cast to `dtype` and broadcast to `shape`.
NodeId materialise(GraphBuilder& b, const Operand& operand, DType dtype, Shape shape);

// A scalar of `dtype`.
NodeId scalar(GraphBuilder& b, DType dtype, const Number& value);
Number to_number(double value);
Number to_number(int64_t value);
// `value` in the dtype and shape of `x`.
NodeId constant_like(GraphBuilder& b, NodeId x, double value);
// A size as a scalar of `dtype`.
NodeId size_value(GraphBuilder& b, Dim size, DType dtype);
// 0, 1, 2, ... along `axis` of `shape`, as i64.
NodeId coordinate(GraphBuilder& b, Shape shape, size_t axis);

NodeId sigmoid(GraphBuilder& b, NodeId x);
// Over `axes`, which stay with size 1.
NodeId mean(GraphBuilder& b, NodeId x, const std::vector<int>& axes);
// The product of the sizes of `axes`, as a scalar of dtype.
NodeId count_value(GraphBuilder& b, NodeId x, const std::vector<int>& axes, DType dtype);
NodeId softmax(GraphBuilder& b, NodeId x, int axis);
NodeId log_softmax(GraphBuilder& b, NodeId x, int axis);
// A row of -inf only, which sees nothing, is 0, not NaN.
NodeId softmax_or_zero(GraphBuilder& b, NodeId x, int axis);

// Matrix product with PyTorch's broadcasting, operands of rank 2 at least. The result has the
// compute type. A single matrix on the right sees the rows of all batches as one matrix.
NodeId matrix_product(GraphBuilder& b, NodeId x, NodeId y);
NodeId swap_axes(GraphBuilder& b, NodeId x, int first, int second);
// x with `axes` first, in their order, then the others in theirs.
NodeId move_to_front(GraphBuilder& b, NodeId x, const std::vector<int>& axes);
// The inverse of move_to_front.
NodeId move_from_front(GraphBuilder& b, NodeId x, const std::vector<int>& axes);
// Rows of x along `axis` as the vector or tensor `index` names them, in place of the axis.
NodeId gather_axis(GraphBuilder& b, NodeId x, int axis, NodeId index);

// x[i0, i1, ...] for index tensors of one shape, one for each of the leading axes of x; negative
// indices count from the end.
NodeId gather_leading(GraphBuilder& b, NodeId x, const std::vector<NodeId>& indices);
// The place in the flattened leading axes of `shape` that such indices name.
NodeId linear_index(GraphBuilder& b, Shape shape, const std::vector<NodeId>& indices);
// out[i, j, k] = x[i, index[i, j, k], k] for axis 1.
NodeId gather_along(GraphBuilder& b, NodeId x, int axis, NodeId index);
// The places in the flattened tensor of shape `from` that gather_along reads, and that scatter
// along `axis` writes.
NodeId places_along(GraphBuilder& b, Shape from, int axis, NodeId index);

// A bound of a slice as Python counts it: from the end when negative, within 0 and `size`.
Dim slice_bound(Call& c, Dim bound, const Dim& size);
// The diagonal of two axes, as the last axis; `offset` above the main one.
NodeId diagonal_of(Call& c, NodeId x, int64_t offset, int first, int second);
// x times the transposed weight: x's last axis becomes the rows of `weight`; bias may be
// kInvalidNode. In the compute type, rounded once.
NodeId linear_of(GraphBuilder& b, NodeId x, NodeId weight, NodeId bias);

// x / (1 - p) where a coin of probability 1 - p keeps it, else 0.
NodeId dropout_of(Call& c, NodeId x, double p);
// batch_norm with the statistics of the batch; the running ones are changed in place.
Values batch_norm_in_training(Call& c);

}  // namespace kiln
