// Quantised tensors: int8 and uint8 with scales per tensor or per axis. A dequantisation is
// arithmetic, which the planner fuses into what reads it.
#include "compiler_core/frontend/onnx/call.h"

namespace kiln {
namespace {

// A scale or zero point along `axis` of `shape`: one number, or one for each index of the axis.
Expr along(OnnxCall& c, Expr value, const Shape& shape) {
  const size_t rank = value.shape().size();
  if (!c.ok() || rank == 0 || numel(value.shape()).is(1)) return value.reshape({}).broadcast(shape);
  if (rank != 1 || c.integer("block_size", 0) != 0) {
    c.unsupported("quantisation in blocks is not covered; use one scale per tensor or per axis");
    return value;
  }
  const int axis = c.axis(c.integer("axis", 1), shape.size());
  if (!c.ok()) return value;
  return {&c.b, c.b.broadcast_in(value.id, shape, std::span(&axis, 1))};
}

Values dequantise(OnnxCall& c) {
  const Expr x = c.tensor(0), scale = c.tensor(1);
  if (!c.ok()) return {};
  const Shape shape = x.shape();
  Expr value = x.cast(DType::kF32);
  if (is_integer(x.dtype())) value = x.cast(DType::kI32).cast(DType::kF32);
  if (c.has(2)) {
    // Exact: both are small integers.
    const Expr zero = c.tensor(2);
    value = value - along(c, zero.cast(DType::kF32), shape);
  }
  if (!c.ok()) return {};
  return {(value * along(c, scale.cast(DType::kF32), shape)).cast(scale.dtype()).id};
}

struct Limits {
  double low = 0, high = 0;
};
std::optional<Limits> limits_of(DType type) {
  if (type == DType::kI8) return Limits{-128, 127};
  if (type == DType::kU8) return Limits{0, 255};
  if (type == DType::kI16) return Limits{-32768, 32767};
  return std::nullopt;
}

// Rounded half to even, then shifted, then held within the type.
Expr quantised(Expr x, Expr scale, Expr zero, DType type, const Limits& limits) {
  const Expr rounded = apply(Op::kRound, x / scale) + zero;
  return min(max(rounded, limits.low), limits.high).cast(DType::kI32).cast(type);
}

Values quantise(OnnxCall& c) {
  const Expr x = c.tensor(0), scale = c.tensor(1);
  if (!c.ok()) return {};
  DType type = c.dtype("output_dtype", DType::kU8);
  Expr zero = x.cast(DType::kF32).like(0);
  const Shape shape = x.shape();
  if (c.has(2)) {
    const Expr given = c.tensor(2);
    type = given.dtype();
    zero = along(c, given.cast(DType::kF32), shape);
  }
  const auto limits = limits_of(type);
  if (c.ok() && !limits)
    return {c.unsupported("quantisation to " + std::string(to_string(type)) + " is not covered")};
  if (!c.ok()) return {};
  const Expr scales = along(c, scale.cast(DType::kF32), shape);
  if (!c.ok()) return {};
  return {quantised(x.cast(DType::kF32), scales, zero, type, *limits).id};
}

// To uint8, with scale and zero point from the tensor's own range, which includes 0.
Values quantise_by_range(OnnxCall& c) {
  const Expr x = c.tensor(0);
  if (!c.ok()) return {};
  GraphBuilder& b = c.b;
  const Shape shape = x.shape();
  std::vector<int> all;
  for (size_t i = 0; i < shape.size(); ++i) all.push_back(static_cast<int>(i));
  const auto extreme = [&](Op op) { return all.empty() ? x : Expr{&b, b.reduce(op, x.id, all)}; };
  const Expr high = max(extreme(Op::kReduceMax), 0), low = min(extreme(Op::kReduceMin), 0);
  const Expr scale = (high - low) / 255.0;
  const Expr zero = apply(Op::kRound, min(max(0.0 - low / scale, 0), 255));
  const Expr y = quantised(x, scale.broadcast(shape), zero.broadcast(shape), DType::kU8, {0, 255});
  return {y.id, scale.id, zero.cast(DType::kI32).cast(DType::kU8).id};
}

constexpr OnnxLowering kOnnxQuantisedLowerings[] = {
    {"DequantizeLinear", dequantise},
    {"QuantizeLinear", quantise},
    {"DynamicQuantizeLinear", quantise_by_range},
};

}  // namespace

std::span<const OnnxLowering> onnx_quantised_lowerings() {
  return kOnnxQuantisedLowerings;
}

}  // namespace kiln
