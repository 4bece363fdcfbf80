#include "compiler_core/frontend/decompositions.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compiler_core/ir/affine.h"

namespace kiln {
namespace {

enum NumberKind { kNothing, kBoolKind, kIntegerKind, kFloatKind };

NumberKind kind_of(DType dtype) {
  return is_float(dtype) ? kFloatKind : dtype == DType::kBool ? kBoolKind : kIntegerKind;
}

// Operands of one class (tensors, scalars, numbers) promoted among themselves.
struct Promoted {
  NumberKind kind = kNothing;
  DType dtype = DType::kBool;

  void add(DType other) {
    dtype = kind == kNothing ? other : promote_types(dtype, other);
    kind = kind_of(dtype);
  }
};

// `lower` only matters when it is of a higher kind.
Promoted combine(const Promoted& higher, const Promoted& lower) {
  return lower.kind > higher.kind ? lower : higher;
}

}  // namespace

DType dtype_of(const Number& number) {
  switch (number.kind) {
    case Number::Kind::kBool:
      return DType::kBool;
    case Number::Kind::kInt:
      return DType::kI64;
    case Number::Kind::kFloat:
      return DType::kF32;  // the default dtype
  }
  return DType::kF32;
}

DType promote_types(DType a, DType b) {
  if (a == b) return a;
  const NumberKind kind_a = kind_of(a), kind_b = kind_of(b);
  if (kind_a != kind_b) return kind_a > kind_b ? a : b;
  if (kind_a == kFloatKind) {
    if (size_of(a) == size_of(b)) return DType::kF32;  // f16 with bf16
    return size_of(a) > size_of(b) ? a : b;
  }
  // u8 with i8 needs the next signed size; every other pair takes the larger.
  if (size_of(a) == size_of(b)) return DType::kI16;
  return size_of(a) > size_of(b) ? a : b;
}

DType result_type(const GraphBuilder& b, std::span<const Operand> operands) {
  Promoted tensors, scalars, numbers;
  for (const Operand& operand : operands) {
    if (operand.number)
      numbers.add(dtype_of(*operand.number));
    else
      (b.shape(operand.id).empty() ? scalars : tensors).add(b.dtype(operand.id));
  }
  return combine(tensors, combine(scalars, numbers)).dtype;
}

DType to_float_type(DType dtype) {
  return is_float(dtype) ? dtype : DType::kF32;
}

Shape broadcast_shapes(GraphBuilder& b, const Shape& x, const Shape& y) {
  const Shape& longer = x.size() >= y.size() ? x : y;
  const Shape& shorter = x.size() >= y.size() ? y : x;
  Shape result = longer;
  const size_t lead = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    Dim& size = result[lead + i];
    if (size.is(1)) size = shorter[i];
    if (size != shorter[i] && !shorter[i].is(1))
      b.fail_with({Code::kInvalidArgument,
                   "shapes " + to_string(x) + " and " + to_string(y) + " do not broadcast", 0});
  }
  return result;
}

NodeId materialise(GraphBuilder& b, const Operand& operand, DType dtype, Shape shape) {
  if (operand.number) return b.broadcast(scalar(b, dtype, *operand.number), std::move(shape));
  return b.broadcast(b.cast(operand.id, dtype), std::move(shape));
}

NodeId scalar(GraphBuilder& b, DType dtype, const Number& value) {
  if (!value.integer.is_constant()) return size_value(b, value.integer, dtype);
  if (is_float(dtype)) return b.constant(dtype, value.value);
  if (dtype == DType::kBool) return b.constant_int(dtype, value.value != 0 ? 1 : 0);
  int64_t integer = value.integer.constant();
  if (value.kind == Number::Kind::kFloat) {
    // Out of range is unspecified in PyTorch; here it is 0.
    const bool fits = value.value > -9.2e18 && value.value < 9.2e18;
    integer = fits ? static_cast<int64_t>(value.value) : 0;
  }
  switch (dtype) {
    case DType::kI8:
      integer = static_cast<int8_t>(integer);  // NOLINT(bugprone-signed-char-misuse): it wraps
      break;
    case DType::kI16:
      integer = static_cast<int16_t>(integer);
      break;
    case DType::kI32:
      integer = static_cast<int32_t>(integer);
      break;
    case DType::kU8:
      integer = static_cast<uint8_t>(integer);
      break;
    default:
      break;
  }
  return b.constant_int(dtype, integer);
}

Number to_number(double value) {
  return {Number::Kind::kFloat, value, 0};
}
Number to_number(int64_t value) {
  return {Number::Kind::kInt, static_cast<double>(value), value};
}

NodeId constant_like(GraphBuilder& b, NodeId x, double value) {
  return b.broadcast(scalar(b, b.dtype(x), to_number(value)), b.shape(x));
}

NodeId size_value(GraphBuilder& b, Dim size, DType dtype) {  // NOLINT: see the header
  if (size.is_constant()) return scalar(b, dtype, to_number(size.constant()));
  // A core graph has no values of sizes: it counts ones.
  const NodeId ones = b.broadcast(b.constant_int(DType::kI64, 1), {size});
  return b.cast(b.reduce(Op::kReduceSum, ones, {0}), dtype);
}

NodeId coordinate(GraphBuilder& b, Shape shape, size_t axis) {
  const int at = static_cast<int>(axis);
  const NodeId line = b.iota(DType::kI64, shape[axis]);
  return b.broadcast_in(line, std::move(shape), std::span(&at, 1));
}

NodeId sigmoid(GraphBuilder& b, NodeId x) {
  const NodeId e = b.unary(Op::kExp, b.unary(Op::kNeg, x));
  return b.unary(Op::kReciprocal, b.binary(Op::kAdd, e, constant_like(b, e, 1)));
}

NodeId count_value(GraphBuilder& b, NodeId x, const std::vector<int>& axes, DType dtype) {
  if (!b.ok()) return kInvalidNode;
  Dim count = 1;
  for (int axis : axes) count = count * b.shape(x)[static_cast<size_t>(axis)];
  return size_value(b, count, dtype);
}

NodeId mean(GraphBuilder& b, NodeId x, const std::vector<int>& axes) {
  const NodeId sum = b.reduce(Op::kReduceSum, x, axes, true);
  return b.binary(Op::kDiv, sum, b.broadcast(count_value(b, x, axes, b.dtype(x)), b.shape(sum)));
}

NodeId softmax(GraphBuilder& b, NodeId x, int axis) {
  if (b.shape(x).empty()) return constant_like(b, x, 1);
  const Shape shape = b.shape(x);
  const NodeId greatest = b.broadcast(b.reduce(Op::kReduceMax, x, {axis}, true), shape);
  const NodeId e = b.unary(Op::kExp, b.binary(Op::kSub, x, greatest));
  return b.binary(Op::kDiv, e, b.broadcast(b.reduce(Op::kReduceSum, e, {axis}, true), shape));
}

NodeId softmax_or_zero(GraphBuilder& b, NodeId scores, int axis) {
  if (!b.ok() || b.shape(scores).empty()) return softmax(b, scores, axis);
  const NodeId greatest = b.reduce(Op::kReduceMax, scores, {axis}, true);
  const NodeId blind = b.binary(Op::kEq, greatest, constant_like(b, greatest, -HUGE_VAL));
  const NodeId p = softmax(b, scores, axis);
  return b.select(b.broadcast(blind, b.shape(p)), constant_like(b, p, 0), p);
}

NodeId log_softmax(GraphBuilder& b, NodeId x, int axis) {
  if (b.shape(x).empty()) return constant_like(b, x, 0);
  const Shape shape = b.shape(x);
  const NodeId greatest = b.broadcast(b.reduce(Op::kReduceMax, x, {axis}, true), shape);
  const NodeId shifted = b.binary(Op::kSub, x, greatest);
  const NodeId sum = b.reduce(Op::kReduceSum, b.unary(Op::kExp, shifted), {axis}, true);
  return b.binary(Op::kSub, shifted, b.broadcast(b.unary(Op::kLog, sum), shape));
}

NodeId swap_axes(GraphBuilder& b, NodeId x, int first, int second) {
  if (!b.ok()) return x;
  std::vector<int> axes(b.shape(x).size());
  std::iota(axes.begin(), axes.end(), 0);
  if (!axes.empty()) std::swap(axes[static_cast<size_t>(first)], axes[static_cast<size_t>(second)]);
  return b.permute(x, axes);
}

NodeId move_to_front(GraphBuilder& b, NodeId x, const std::vector<int>& axes) {
  if (!b.ok()) return x;
  std::vector<int> order = axes;
  for (int i = 0; i < static_cast<int>(b.shape(x).size()); ++i)
    if (std::find(axes.begin(), axes.end(), i) == axes.end()) order.push_back(i);
  return b.permute(x, order);
}

NodeId move_from_front(GraphBuilder& b, NodeId x, const std::vector<int>& axes) {
  if (!b.ok()) return x;
  std::vector<int> order = axes;
  for (int i = 0; i < static_cast<int>(b.shape(x).size()); ++i)
    if (std::find(axes.begin(), axes.end(), i) == axes.end()) order.push_back(i);
  std::vector<int> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    inverse[static_cast<size_t>(order[i])] = static_cast<int>(i);
  return b.permute(x, inverse);
}

NodeId gather_axis(GraphBuilder& b, NodeId x, int axis, NodeId index) {
  const NodeId rows = b.gather(move_to_front(b, x, {axis}), b.cast(index, DType::kI64));
  const size_t count = b.shape(index).size();
  if (!b.ok() || axis == 0) return rows;
  // The index's axes go behind the axes that were before the indexed one.
  std::vector<int> order;
  for (size_t i = 0; i < b.shape(rows).size(); ++i) {
    const size_t before = static_cast<size_t>(axis);
    const size_t from = i < before ? count + i : i < before + count ? i - before : i;
    order.push_back(static_cast<int>(from));
  }
  return b.permute(rows, order);
}

NodeId matrix_product(GraphBuilder& b, NodeId x, NodeId y) {
  const Shape from = b.shape(x), to = b.shape(y);
  if (from.size() < 2 || to.size() < 2)
    return b.fail_with({Code::kInvalidArgument,
                        "no matrix product of " + to_string(from) + " and " + to_string(to), 0});
  if (from.size() > 2 && to.size() == 2) {
    Shape rows = from;
    rows.pop_back();
    const NodeId product = b.matmul(b.reshape(x, {numel(rows), from.back()}), y);
    rows.push_back(to.back());
    return b.reshape(product, rows);
  }
  Shape batch = broadcast_shapes(b, {from.begin(), from.end() - 2}, {to.begin(), to.end() - 2});
  Shape left = batch, right = batch;
  left.insert(left.end(), from.end() - 2, from.end());
  right.insert(right.end(), to.end() - 2, to.end());
  return b.matmul(b.broadcast(x, left), b.broadcast(y, right));
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): see the header
NodeId linear_index(GraphBuilder& b, Shape shape, const std::vector<NodeId>& indices) {
  NodeId linear = kInvalidNode;
  for (size_t i = 0; i < indices.size(); ++i) {
    NodeId index = b.cast(indices[i], DType::kI64);
    const Shape at = b.shape(index);
    const NodeId size = b.broadcast(size_value(b, shape[i], DType::kI64), at);
    const NodeId zero = b.broadcast(b.constant_int(DType::kI64, 0), at);
    index = b.select(b.binary(Op::kLt, index, zero), b.binary(Op::kAdd, index, size), index);
    linear = i == 0 ? index : b.binary(Op::kAdd, b.binary(Op::kMul, linear, size), index);
  }
  return linear;
}

NodeId gather_leading(GraphBuilder& b, NodeId x, const std::vector<NodeId>& indices) {
  if (indices.size() == 1) return b.gather(x, b.cast(indices[0], DType::kI64));
  const Shape shape = b.shape(x);
  if (indices.empty() || indices.size() > shape.size())
    return b.fail_with({Code::kInvalidArgument, "has more indices than axes", 0});
  // One index into the flattened leading axes.
  const auto rest = shape.begin() + static_cast<std::ptrdiff_t>(indices.size());
  Shape flat = {numel(Shape(shape.begin(), rest))};
  flat.insert(flat.end(), rest, shape.end());
  return b.gather(b.reshape(x, flat), linear_index(b, shape, indices));
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): see the header
NodeId places_along(GraphBuilder& b, Shape from, int axis, NodeId index) {
  const Shape to = b.shape(index);
  if (!b.ok() || from.empty() || from.size() != to.size())
    return b.fail_with(
        {Code::kInvalidArgument, "needs a tensor and an index of one rank, at least 1", 0});
  const std::vector<Dim> strides = contiguous_strides(from);
  NodeId linear = kInvalidNode;
  for (size_t i = 0; i < from.size(); ++i) {
    const bool along = static_cast<int>(i) == axis;
    // The only coordinate of an axis of size 1 is 0.
    if (!along && to[i].is(1)) continue;
    NodeId term = along ? b.cast(index, DType::kI64) : coordinate(b, to, i);
    if (!strides[i].is(1))
      term = b.binary(Op::kMul, term, b.broadcast(size_value(b, strides[i], DType::kI64), to));
    linear = linear == kInvalidNode ? term : b.binary(Op::kAdd, linear, term);
    if (!b.ok()) return kInvalidNode;
  }
  return linear;
}

NodeId gather_along(GraphBuilder& b, NodeId x, int axis, NodeId index) {
  const NodeId places = places_along(b, b.shape(x), axis, index);
  return b.gather(b.reshape(x, {numel(b.shape(x))}), places);
}

Dim slice_bound(Call& c, Dim bound, const Dim& size) {
  const auto never_negative = [&](const Dim& dim) { return lower_bound(dim, c.symbols()) >= 0; };
  if (bound.is(INT64_MAX)) return size;
  if (bound.is_constant() && bound.constant() < 0) bound = bound + size;
  if (!never_negative(bound)) {
    if (never_negative(Dim(0) - bound)) return 0;
    c.unsupported("a slice of symbolic size " + size.to_string() +
                  " that may start before it is not covered; give the Dim a min in torch.export");
    return 0;
  }
  if (never_negative(size - bound)) return bound;
  if (never_negative(bound - size)) return size;
  c.unsupported("a slice to " + bound.to_string() + " of symbolic size " + size.to_string() +
                " is not covered; give the Dim a min in torch.export");
  return 0;
}

NodeId diagonal_of(Call& c, NodeId x, int64_t offset, int first, int second) {
  GraphBuilder& b = c.b;
  Shape shape = b.shape(x);
  if (!c.ok() || shape.size() < 2 || first == second)
    return c.invalid("a diagonal needs two different axes");
  const Dim rows = shape[static_cast<size_t>(first)], columns = shape[static_cast<size_t>(second)];
  if (!rows.is_constant() || !columns.is_constant())
    return c.unsupported("a diagonal of a symbolic size is not covered");
  std::vector<Dim> strides = contiguous_strides(shape);
  const Dim down = strides[static_cast<size_t>(first)],
            right = strides[static_cast<size_t>(second)];
  const int64_t skipped_rows = std::max<int64_t>(-std::max<int64_t>(offset, -(INT64_MAX / 2)), 0);
  const int64_t skipped_columns = std::max<int64_t>(offset, 0);
  const int64_t length = std::max<int64_t>(
      std::min(rows.constant() - skipped_rows, columns.constant() - skipped_columns), 0);
  for (const int axis : {std::max(first, second), std::min(first, second)}) {
    shape.erase(shape.begin() + axis);
    strides.erase(strides.begin() + axis);
  }
  shape.emplace_back(length);
  strides.push_back(down + right);
  const Dim start = length == 0 ? Dim(0) : Dim(skipped_rows) * down + Dim(skipped_columns) * right;
  return b.view(x, shape, strides, start);
}

NodeId linear_of(GraphBuilder& b, NodeId x, NodeId weight, NodeId bias) {
  Shape shape = b.shape(x);
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
  return b.reshape(b.cast(product, type), shape);
}

}  // namespace kiln
