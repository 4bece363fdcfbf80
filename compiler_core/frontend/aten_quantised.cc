// Integers that stand for real numbers: products of int8, and quantisation as torch.export's flow
// writes it (quantized_decomposed) with a scale for a tensor, a channel, a row or a group. A value q
// stands for (q - zero_point) * scale.
#include <cmath>

#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

// To nearest even.
Expr round(Expr x) {
  return apply(Op::kRound, x);
}

// A number or a tensor of one element, as a scalar of `dtype`.
Expr scalar_of(Call& c, std::string_view name, DType dtype) {
  const Operand operand = c.operand(name);
  if (!c.ok()) return {&c.b, kInvalidNode};
  if (operand.number) return {&c.b, scalar(c.b, dtype, *operand.number)};
  if (!numel(c.b.shape(operand.id)).is(1))
    return {&c.b, c.invalid("argument '" + std::string(name) + "' has more than one element")};
  return Expr{&c.b, operand.id}.reshape({}).cast(dtype);
}

// How the scales lie beside the elements that they belong to.
struct Parameters {
  Expr scale, zero;  // broadcast with the tensor that is quantised; zero is of scale's dtype
};

Expr to_integers(Call& c, Expr x, const Parameters& p, DType type) {
  const DType compute = p.scale.dtype();
  const Expr least = scalar_of(c, "quant_min", compute), most = scalar_of(c, "quant_max", compute);
  const Expr places = round(x.cast(compute) * (1 / p.scale)) + p.zero;
  return min(max(places, least), most).cast(type);
}
Expr to_reals(Expr x, const Parameters& p) {
  return (x.cast(p.scale.dtype()) - p.zero) * p.scale;
}

Parameters per_tensor(Call& c) {
  return {scalar_of(c, "scale", DType::kF32), scalar_of(c, "zero_point", DType::kF32)};
}
Values quantize_per_tensor(Call& c) {
  const Expr x = tensor(c, "input");
  const DType type = c.dtype("dtype", DType::kI8);
  const Parameters p = per_tensor(c);
  return {c.ok() ? to_integers(c, x, p, type).id : kInvalidNode};
}
Values dequantize_per_tensor(Call& c) {
  const Expr x = tensor(c, "input");
  const DType type = c.dtype("out_dtype", DType::kF32);
  const Parameters p = per_tensor(c);
  return {c.ok() ? to_reals(x, p).cast(type).id : kInvalidNode};
}

Expr optional(Call& c, std::string_view name, Expr like) {
  return c.has(name) ? tensor(c, name).cast(like.dtype()) : like.like(0);
}

// Vectors along one axis of `x`.
Parameters per_channel(Call& c, Expr x, std::string_view scales, std::string_view zeros) {
  const Expr scale = tensor(c, scales).cast(DType::kF32);
  const Expr zero = optional(c, zeros, scale);
  const int axis = c.axis("axis", x.shape().size());
  if (!c.ok() || scale.shape().size() != 1 || zero.shape() != scale.shape()) {
    c.invalid("needs a vector of scales and one of zero points");
    return {scale, scale};
  }
  Shape shape(x.shape().size(), Dim(1));
  shape[static_cast<size_t>(axis)] = scale.shape()[0];
  return {scale.reshape(shape), zero.reshape(shape)};
}
Values quantize_per_channel(Call& c) {
  const Expr x = tensor(c, "input");
  const DType type = c.dtype("dtype", DType::kI8);
  const Parameters p = per_channel(c, x, "scales", "zero_points");
  return {c.ok() ? to_integers(c, x, p, type).id : kInvalidNode};
}
Values dequantize_per_channel(Call& c) {
  const Expr x = tensor(c, "input");
  const DType type = c.dtype("out_dtype", DType::kF32);
  const Parameters p = per_channel(c, x, "scales", "zero_points");
  return {c.ok() ? to_reals(x, p).cast(type).id : kInvalidNode};
}

// Rows along the last axis, with a scale of their own: [..., 1].
Parameters per_token(Call& c, DType compute) {
  return {tensor(c, "scales").cast(compute), tensor(c, "zero_points").cast(compute)};
}
// Here the zero point is added before rounding.
Expr rounded_with_zero(Call& c, Expr x, const Parameters& p, DType type) {
  const DType compute = p.scale.dtype();
  const Expr least = scalar_of(c, "quant_min", compute), most = scalar_of(c, "quant_max", compute);
  const Expr places = round(x.cast(compute) * (1 / p.scale) + p.zero);
  return min(max(places, least), most).cast(type);
}
Values quantize_per_token(Call& c) {
  const Expr x = tensor(c, "input");
  const DType type = c.dtype("dtype", DType::kI8);
  const Parameters p = per_token(c, c.ok() ? c.b.dtype(c.tensor("scales")) : DType::kF32);
  return {c.ok() ? rounded_with_zero(c, x, p, type).id : kInvalidNode};
}
Values dequantize_per_token(Call& c) {
  const Expr x = tensor(c, "input");
  const DType type = c.dtype("output_dtype", DType::kF32);
  const Parameters p = per_token(c, c.ok() ? c.b.dtype(c.tensor("scales")) : DType::kF32);
  return {c.ok() ? to_reals(x, p).cast(type).id : kInvalidNode};
}
// The greatest magnitude of a row becomes 127.
Values choose_qparams_per_token(Call& c) {
  const Expr x = tensor(c, "input");
  if (!c.ok() || x.shape().empty()) return {c.invalid("needs rows")};
  const int last = static_cast<int>(x.shape().size()) - 1;
  const Expr greatest{&c.b, c.b.reduce(Op::kReduceMax, abs(wide(x)).id, {last}, true)};
  const Expr scale = max(greatest, 1e-5) / 127;
  return {scale.cast(DType::kF64).id, scale.like(0).cast(DType::kI64).id};
}

// In the dtypes of torch's own steps: a difference of integers of 8 bits wraps, halves are rounded.
Expr group_to_reals(Expr x, Expr zeros, Expr scales) {
  const auto rounded = [](Expr y, DType type) { return is_half(type) ? y.cast(type) : y; };
  const DType type = promote_types(x.dtype(), zeros.dtype());
  const DType compute = is_integer(type) && size_of(type) < 4 ? type : DType::kF32;
  const Expr difference = rounded(x.cast(compute) - zeros.cast(compute), type);
  return rounded(difference.cast(DType::kF32) * scales.cast(DType::kF32), scales.dtype());
}

// Groups of `group_size` elements of a matrix's rows; a row of scales for each row.
Values per_group(Call& c, bool quantise) {
  const Expr x = tensor(c, "input"), scales = tensor(c, "scales");
  const Expr zeros = c.has("zero_points") ? tensor(c, "zero_points") : scales.like(0);
  const DType type = quantise ? c.dtype("dtype", DType::kI8) : c.dtype("output_dtype", DType::kF32);
  int64_t size = c.integer("group_size", 128);
  if (!c.ok() || x.shape().size() != 2 || !x.shape()[1].is_constant())
    return {c.invalid("needs a matrix, of rows of a known size")};
  const Shape shape = x.shape();
  size = std::min(size, shape[1].constant());
  if (size < 1 || shape[1].constant() % size != 0)
    return {c.invalid("rows are not divided by the size of groups")};
  const Dim groups = shape[0] * Dim(shape[1].constant() / size);
  const Expr scale = scales.reshape({groups, 1}), zero = zeros.reshape({groups, 1});
  const Parameters p{scale.cast(DType::kF32), zero.cast(DType::kF32)};
  const Expr rows = x.reshape({groups, size});
  const Expr result =
      quantise ? rounded_with_zero(c, rows, p, type) : group_to_reals(rows, zero, scale).cast(type);
  return {result.reshape(shape).id};
}
Values quantize_per_group(Call& c) {
  return per_group(c, true);
}
Values dequantize_per_group(Call& c) {
  return per_group(c, false);
}

// Quantised and back, in the dtype of x.
Expr there_and_back(Call& c, Expr x, Parameters p) {
  const Expr wide_x = wide(x);
  p = {p.scale.cast(wide_x.dtype()), p.zero.cast(wide_x.dtype())};
  const Expr places = round(wide_x * (1 / p.scale) + p.zero);
  const Expr least = scalar_of(c, "quant_min", places.dtype());
  const Expr most = scalar_of(c, "quant_max", places.dtype());
  return ((min(max(places, least), most) - p.zero) * p.scale).cast(x.dtype());
}
Values fake_quantize_per_tensor(Call& c) {
  const Expr x = tensor(c, "self");
  const Parameters p = per_tensor(c);
  return {c.ok() ? there_and_back(c, x, p).id : kInvalidNode};
}
Values fake_quantize_per_channel(Call& c) {
  const Expr x = tensor(c, "self");
  const Parameters p = per_channel(c, x, "scale", "zero_point");
  return {c.ok() ? there_and_back(c, x, p).id : kInvalidNode};
}

// int8 x int8, summed exactly in int32.
Values int_mm(Call& c) {
  GraphBuilder& b = c.b;
  const Expr x = tensor(c, "self").cast(DType::kI32), y = tensor(c, "mat2").cast(DType::kI32);
  if (!c.ok() || x.shape().size() != 2 || y.shape().size() != 2)
    return {c.invalid("needs two matrices")};
  return {b.matmul(x.id, y.id)};
}

// x times the transpose of int8 weights that have a scale for each row.
Values weight_int8pack_mm(Call& c) {
  GraphBuilder& b = c.b;
  const Expr x = tensor(c, "self"), weight = tensor(c, "mat2"), scales = tensor(c, "scales");
  if (!c.ok() || x.shape().size() != 2 || weight.shape().size() != 2)
    return {c.invalid("needs two matrices")};
  const NodeId product = b.matmul(x.id, swap_axes(b, weight.cast(x.dtype()).id, 0, 1));
  const Expr wide_product{&b, product};
  return {(wide_product * scales.cast(wide_product.dtype())).cast(x.dtype()).id};
}

constexpr Lowering kQuantisedLowerings[] = {
    {"aten._int_mm.default", int_mm},
    {"aten._weight_int8pack_mm.default", weight_int8pack_mm},
    {"aten.fake_quantize_per_tensor_affine.default", fake_quantize_per_tensor},
    {"aten.fake_quantize_per_tensor_affine.tensor_qparams", fake_quantize_per_tensor},
    {"aten.fake_quantize_per_channel_affine.default", fake_quantize_per_channel},
    {"quantized_decomposed.quantize_per_tensor.default", quantize_per_tensor},
    {"quantized_decomposed.quantize_per_tensor.tensor", quantize_per_tensor},
    {"quantized_decomposed.quantize_per_tensor.tensor2", quantize_per_tensor},
    {"quantized_decomposed.dequantize_per_tensor.default", dequantize_per_tensor},
    {"quantized_decomposed.dequantize_per_tensor.tensor", dequantize_per_tensor},
    {"quantized_decomposed.dequantize_per_tensor.tensor2", dequantize_per_tensor},
    {"quantized_decomposed.quantize_per_channel.default", quantize_per_channel},
    {"quantized_decomposed.dequantize_per_channel.default", dequantize_per_channel},
    {"quantized_decomposed.quantize_per_token.default", quantize_per_token},
    {"quantized_decomposed.dequantize_per_token.default", dequantize_per_token},
    {"quantized_decomposed.choose_qparams_per_token.default", choose_qparams_per_token},
    {"quantized_decomposed.quantize_per_channel_group.default", quantize_per_group},
    {"quantized_decomposed.dequantize_per_channel_group.default", dequantize_per_group},
};

}  // namespace

std::span<const Lowering> quantised_lowerings() {
  return kQuantisedLowerings;
}

}  // namespace kiln
