// Softmax and the norms: each in the compute type, rounded once.
#include <algorithm>
#include <limits>
#include <numeric>

#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

template <NodeId (*f)(GraphBuilder&, NodeId, int)>
Values along_axis(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("self");
  const int axis = c.axis("dim", b.shape(x).size());
  DType type = c.dtype("dtype", b.dtype(x));
  if (c.flag("half_to_float", false)) type = DType::kF32;
  if (!c.ok()) return {};
  if (!is_float(type)) return {c.invalid("softmax of a dtype that is not a float")};
  // A dtype argument converts before; half types are widened for the computation only.
  const NodeId converted = c.flag("half_to_float", false) ? x : b.cast(x, type);
  return {b.cast(f(b, b.cast(converted, compute_type(type)), axis), type)};
}

std::vector<int> trailing_axes(size_t rank, size_t count) {
  std::vector<int> axes(count);
  std::iota(axes.begin(), axes.end(), static_cast<int>(rank - count));
  return axes;
}

struct Normalised {
  NodeId value = kInvalidNode;  // (x - mean) / sqrt(variance + eps)
  NodeId mean = kInvalidNode, rstd = kInvalidNode;
};

// x in its compute type.
Normalised normalise(GraphBuilder& b, NodeId x, const std::vector<int>& axes, double eps) {
  if (!b.ok()) return {};
  const Shape shape = b.shape(x);
  Normalised result;
  result.mean = mean(b, x, axes);
  const NodeId centred = b.binary(Op::kSub, x, b.broadcast(result.mean, shape));
  const NodeId variance = mean(b, b.binary(Op::kMul, centred, centred), axes);
  result.rstd = b.unary(Op::kRsqrt, b.binary(Op::kAdd, variance, constant_like(b, variance, eps)));
  result.value = b.binary(Op::kMul, centred, b.broadcast(result.rstd, shape));
  return result;
}

// value * weight + bias, either of which may be absent.
NodeId scale_and_shift(GraphBuilder& b, NodeId value, NodeId weight, NodeId bias) {
  const DType type = b.dtype(value);
  const Shape shape = b.shape(value);
  if (weight != kInvalidNode)
    value = b.binary(Op::kMul, value, b.broadcast(b.cast(weight, type), shape));
  if (bias != kInvalidNode)
    value = b.binary(Op::kAdd, value, b.broadcast(b.cast(bias, type), shape));
  return value;
}

// The number of trailing axes that `normalized_shape` names; 0 when it does not fit.
size_t normalised_rank(Call& c, NodeId x) {
  const std::vector<Dim> sizes = c.sizes("normalized_shape");
  const Shape& shape = c.b.shape(x);
  if (sizes.empty() || sizes.size() > shape.size() ||
      !std::equal(sizes.rbegin(), sizes.rend(), shape.rbegin())) {
    c.invalid("normalized_shape " + to_string(sizes) + " is not the end of " + to_string(shape));
    return 0;
  }
  return sizes.size();
}

Values native_layer_norm(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("input");
  const size_t count = normalised_rank(c, x);
  const NodeId weight = c.optional_tensor("weight"), bias = c.optional_tensor("bias");
  const double eps = c.real("eps", 1e-5);
  if (!c.ok()) return {};
  const DType type = b.dtype(x);
  const std::vector<int> axes = trailing_axes(b.shape(x).size(), count);
  const Normalised n = normalise(b, b.cast(x, compute_type(type)), axes, eps);
  // The statistics are as wide as on a GPU; on a CPU they are declared with the parameters' dtype.
  return {b.cast(scale_and_shift(b, n.value, weight, bias), type), n.mean, n.rstd};
}

Values rms_norm(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId input = c.tensor("input");
  const size_t count = normalised_rank(c, input);
  const NodeId weight = c.optional_tensor("weight");
  if (!c.ok()) return {};
  const DType type = b.dtype(input);
  const double epsilon = type == DType::kF64 ? std::numeric_limits<double>::epsilon()
                                             : std::numeric_limits<float>::epsilon();
  if (is_half(type) && !c.has("eps"))
    return {c.unsupported("rms_norm of a half type without eps is not covered; give it eps")};
  const double eps = c.real("eps", epsilon);
  const NodeId x = b.cast(input, compute_type(type));
  const NodeId square = mean(b, b.binary(Op::kMul, x, x), trailing_axes(b.shape(x).size(), count));
  const NodeId rstd =
      b.unary(Op::kRsqrt, b.binary(Op::kAdd, square, constant_like(b, square, eps)));
  const NodeId value = b.binary(Op::kMul, x, b.broadcast(rstd, b.shape(x)));
  // The fused op also gives the scale, for its derivative.
  return {b.cast(scale_and_shift(b, value, weight, kInvalidNode), type), rstd};
}

// A vector of channels against axis 1 of `shape`.
NodeId per_channel(GraphBuilder& b, NodeId x, const Shape& shape, DType compute) {
  if (x == kInvalidNode || !b.ok()) return x;
  const int axis = 1;
  const NodeId wide = b.cast(x, compute);
  return b.broadcast_in(wide, shape, std::span(&axis, 1));
}

Values batch_norm(Call& c) {
  GraphBuilder& b = c.b;
  if (c.flag("training", false)) return batch_norm_in_training(c);
  const NodeId x = c.tensor("input");
  const NodeId weight = c.optional_tensor("weight"), bias = c.optional_tensor("bias");
  const NodeId mean = c.tensor("running_mean"), variance = c.tensor("running_var");
  const double eps = c.real("eps", 1e-5);
  const Shape shape = b.shape(x);
  if (!c.ok() || shape.size() < 2) return {c.invalid("batch_norm of a tensor without channels")};
  const DType compute = compute_type(b.dtype(x));
  const auto channels = [&](NodeId v) { return per_channel(b, v, shape, compute); };
  const NodeId centred = b.binary(Op::kSub, b.cast(x, compute), channels(mean));
  const NodeId wide = b.cast(variance, compute);
  const NodeId rstd = b.unary(Op::kRsqrt, b.binary(Op::kAdd, wide, constant_like(b, wide, eps)));
  const NodeId value = b.binary(Op::kMul, centred, channels(rstd));
  return {b.cast(scale_and_shift(b, value, channels(weight), channels(bias)), b.dtype(x))};
}
// Also gives the saved statistics, which are empty at inference and have no users.
Values native_batch_norm(Call& c) {
  Values values = batch_norm(c);
  values.resize(3, kInvalidNode);
  return values;
}

// Each group of channels, with all that follows, is one row.
Values group_norm(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId x = c.tensor("input");
  const int64_t groups = c.integer("num_groups");
  const NodeId weight = c.optional_tensor("weight"), bias = c.optional_tensor("bias");
  const double eps = c.real("eps", 1e-5);
  const Shape shape = b.shape(x);
  if (!c.ok() || shape.size() < 2 || groups < 1)
    return {c.invalid("group_norm of a tensor without channels")};
  const DType compute = compute_type(b.dtype(x));
  const Dim rest = numel(Shape(shape.begin() + 1, shape.end()));
  const Result<Dim> row = Dim::divide_exact(rest, groups);
  if (!row) return {c.invalid("the channels do not divide into the groups")};
  const NodeId rows = b.reshape(b.cast(x, compute), {shape[0], groups, *row});
  const NodeId value = b.reshape(normalise(b, rows, {2}, eps).value, shape);
  return {b.cast(scale_and_shift(b, value, per_channel(b, weight, shape, compute),
                                 per_channel(b, bias, shape, compute)),
                 b.dtype(x))};
}

// v scaled to the norm g along every axis but `dim`, and what its norm was; all axes for -1.
Values weight_norm(Call& c) {
  const Expr v = tensor(c, "v");
  const bool with_g = c.has("g");
  const int64_t dim = c.integer("dim", 0), rank = static_cast<int64_t>(v.shape().size());
  if (!c.ok() || dim < -1 || dim >= rank) return {c.invalid("names an axis that is not there")};
  std::vector<int> axes;
  for (int axis = 0; axis < rank; ++axis)
    if (axis != dim) axes.push_back(axis);
  const Expr norm = p_norm(wide(v), c.real("pow", 2), axes, dim >= 0);
  if (!with_g) return {norm.cast(v.dtype()).id};
  const Expr g = tensor(c, "g").cast(norm.dtype());
  if (!c.ok()) return {};
  return {(wide(v) * (g / norm)).cast(v.dtype()).id, norm.cast(v.dtype()).id};
}

constexpr Lowering kNormalisationLowerings[] = {
    {"aten._weight_norm.default", weight_norm},
    {"aten._weight_norm_interface.default", weight_norm},
    {"aten.norm_except_dim.default", weight_norm},
    {"aten.softmax.int", along_axis<softmax>},
    {"aten._softmax.default", along_axis<softmax>},
    {"aten._safe_softmax.default", along_axis<softmax_or_zero>},
    {"aten.special_softmax.int", along_axis<softmax>},
    {"aten.special_log_softmax.int", along_axis<log_softmax>},
    {"aten.log_softmax.int", along_axis<log_softmax>},
    {"aten._log_softmax.default", along_axis<log_softmax>},
    {"aten.layer_norm.default", native_layer_norm},
    {"aten.native_layer_norm.default", native_layer_norm},
    {"aten.rms_norm.default", rms_norm},
    {"aten._fused_rms_norm.default", rms_norm},
    {"aten.batch_norm.default", batch_norm},
    {"aten._native_batch_norm_legit_no_training.default", native_batch_norm},
    {"aten.native_batch_norm.default", native_batch_norm},
    {"aten._native_batch_norm_legit.default", native_batch_norm},
    {"aten.group_norm.default", group_norm},
};

}  // namespace

std::span<const Lowering> normalisation_lowerings() {
  return kNormalisationLowerings;
}

}  // namespace kiln
