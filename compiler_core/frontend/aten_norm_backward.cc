// Norms in training: statistics of the batch, and the derivatives of the norms.
#include <algorithm>
#include <array>
#include <numeric>

#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

Expr count_of(Expr x, const std::vector<int>& axes) {
  return {x.b, count_value(*x.b, x.id, axes, x.dtype())};
}
Expr mean_over(Expr x, const std::vector<int>& axes) {
  return axes.empty() ? x : x.sum(axes) / count_of(x, axes);
}

// All axes but the channels', the second.
std::vector<int> batch_axes(const Shape& shape) {
  std::vector<int> axes;
  for (int i = 0; i < static_cast<int>(shape.size()); ++i)
    if (i != 1) axes.push_back(i);
  return axes;
}
// A vector of channels against axis 1, in the dtype of `x`.
Expr per_channel(Expr v, Expr x) {
  const int axis = 1;
  return {x.b, x.b->broadcast_in(v.cast(x.dtype()).id, x.shape(), std::span(&axis, 1))};
}
std::optional<Expr> optional(Call& c, std::string_view name) {
  const NodeId id = c.optional_tensor(name);
  return id == kInvalidNode ? std::nullopt : std::optional(Expr{&c.b, id});
}
NodeId wanted(const std::vector<bool>& mask, size_t i, Expr x) {
  return i < mask.size() && !mask[i] ? kInvalidNode : x.id;
}

// d x of a normalised value x^ = (x - mean) * rstd over `axes`, for the gradient g of x^.
Expr normalised_backward(Expr g, Expr value, Expr rstd, const std::vector<int>& axes) {
  return rstd * (g - mean_over(g, axes) - value * mean_over(g * value, axes));
}

// The axes that a norm repeats along, and those of normalized_shape, which it is over.
struct NormAxes {
  std::vector<int> lead, tail;
};
NormAxes axes_around(Call& c, size_t rank) {
  const size_t count = c.sizes("normalized_shape").size();
  if (!c.ok()) return {};
  if (count == 0 || count > rank) {
    c.invalid("normalized_shape does not fit");
    return {};
  }
  NormAxes axes{std::vector<int>(rank - count), std::vector<int>(count)};
  std::iota(axes.lead.begin(), axes.lead.end(), 0);
  std::iota(axes.tail.begin(), axes.tail.end(), static_cast<int>(rank - count));
  return axes;
}

Values native_layer_norm_backward(Call& c) {
  const Expr grad = tensor(c, "grad_out"), x = tensor(c, "input"), mean = tensor(c, "mean"),
             rstd = tensor(c, "rstd");
  const std::optional<Expr> weight = optional(c, "weight");
  const std::vector<bool> mask = c.flags("output_mask");
  const auto [lead, tail] = axes_around(c, x.shape().size());
  if (!c.ok()) return {};
  const Expr g = wide(grad), v = wide(x), scale = rstd.cast(v.dtype());
  const Expr value = (v - mean.cast(v.dtype())) * scale;
  const Expr inner = weight ? g * weight->cast(v.dtype()) : g;
  const Expr dx = normalised_backward(inner, value, scale, tail).cast(x.dtype());
  const DType type = weight ? weight->dtype() : x.dtype();
  return {wanted(mask, 0, dx), wanted(mask, 1, (g * value).sum(lead, false).cast(type)),
          wanted(mask, 2, g.sum(lead, false).cast(type))};
}

// x^ = x * rstd: the mean of squares plays the part that the variance plays in layer_norm.
Values rms_norm_backward(Call& c) {
  const Expr grad = tensor(c, "grad_out"), x = tensor(c, "input"), rstd = tensor(c, "rstd");
  const std::optional<Expr> weight = optional(c, "weight");
  const std::vector<bool> mask = c.flags("output_mask");
  const auto [lead, tail] = axes_around(c, x.shape().size());
  if (!c.ok()) return {};
  const Expr g = wide(grad), v = wide(x), scale = rstd.cast(v.dtype()), value = v * scale;
  const Expr inner = weight ? g * weight->cast(v.dtype()) : g;
  const Expr dx = scale * (inner - value * mean_over(inner * value, tail));
  const DType type = weight ? weight->dtype() : x.dtype();
  return {wanted(mask, 0, dx.cast(x.dtype())),
          wanted(mask, 1, (g * value).sum(lead, false).cast(type))};
}

// Each group of channels of one sample is a row [n, groups, rest].
struct ChannelGroups {
  Shape rows, shape;
};
std::optional<ChannelGroups> groups_of(Call& c, Expr x, const Dim& groups) {
  const Shape shape = x.shape();
  if (!c.ok() || shape.size() < 2) {
    c.invalid("group_norm of a tensor without channels");
    return std::nullopt;
  }
  const Result<Dim> row = Dim::divide_exact(numel(Shape(shape.begin() + 1, shape.end())), groups);
  if (!row) {
    c.invalid("the channels do not divide into the groups");
    return std::nullopt;
  }
  return ChannelGroups{{shape[0], groups, *row}, shape};
}

Values native_group_norm(Call& c) {
  const Expr x = tensor(c, "input");
  const std::optional<Expr> weight = optional(c, "weight"), bias = optional(c, "bias");
  const Dim groups = c.size("group");
  const double eps = c.real("eps");
  const std::optional<ChannelGroups> g = groups_of(c, x, groups);
  if (!g) return {};
  const Expr rows = wide(x).reshape(g->rows), mean = mean_over(rows, {2}), centred = rows - mean;
  const Expr rstd = rsqrt(mean_over(centred * centred, {2}) + eps);
  Expr value = (centred * rstd).reshape(g->shape);
  if (weight) value = value * per_channel(*weight, value);
  if (bias) value = value + per_channel(*bias, value);
  const DType type = x.dtype();
  const Shape statistics = {g->rows[0], g->rows[1]};
  return {value.cast(type).id, mean.reshape(statistics).cast(type).id,
          rstd.reshape(statistics).cast(type).id};
}

Values native_group_norm_backward(Call& c) {
  const Expr grad = tensor(c, "grad_out"), x = tensor(c, "input"), mean = tensor(c, "mean"),
             rstd = tensor(c, "rstd");
  const std::optional<Expr> weight = optional(c, "weight");
  const std::vector<bool> mask = c.flags("output_mask");
  const std::optional<ChannelGroups> g = groups_of(c, x, c.size("group"));
  if (!g) return {};
  const Expr wide_grad = wide(grad), rows = wide(x).reshape(g->rows);
  const Shape column = {g->rows[0], g->rows[1], 1};
  const Expr scale = rstd.cast(rows.dtype()).reshape(column);
  const Expr value = (rows - mean.cast(rows.dtype()).reshape(column)) * scale;
  const Expr inner = weight ? wide_grad * per_channel(*weight, wide_grad) : wide_grad;
  const Expr dx = normalised_backward(inner.reshape(g->rows), value, scale, {2});
  const std::vector<int> batch = batch_axes(g->shape);
  const DType type = weight ? weight->dtype() : x.dtype();
  return {wanted(mask, 0, dx.reshape(g->shape).cast(x.dtype())),
          wanted(mask, 1, (wide_grad * value.reshape(g->shape)).sum(batch, false).cast(type)),
          wanted(mask, 2, wide_grad.sum(batch, false).cast(type))};
}

struct Statistics {
  Expr mean, variance, rstd;  // one for each channel
};
Statistics batch_statistics(Expr x, double eps) {
  const std::vector<int> axes = batch_axes(x.shape());
  const Shape channels = {x.shape()[1]};
  const Expr mean = mean_over(x, axes), centred = x - mean;
  const Expr variance = mean_over(centred * centred, axes).reshape(channels);
  return {mean.reshape(channels), variance, rsqrt(variance + eps)};
}

// The updated value of a running statistic; the variance's estimate is unbiased.
Expr moved(Expr running, Expr now, double momentum) {
  const Expr kept = wide(running) * (1 - momentum);
  return (kept + now.cast(kept.dtype()) * momentum).cast(running.dtype());
}
Expr unbiased(Expr variance, Expr x) {
  const Expr n = count_of(x, batch_axes(x.shape()));
  return variance * (n / (n - 1));
}

struct BatchNorm {
  Expr x, value;  // value in x's dtype
  Statistics statistics;
};
std::optional<BatchNorm> normalise_batch(Call& c) {
  const Expr x = tensor(c, "input");
  const std::optional<Expr> weight = optional(c, "weight"), bias = optional(c, "bias");
  const double eps = c.real("eps", 1e-5);
  if (!c.ok() || x.shape().size() < 2) {
    c.invalid("batch_norm of a tensor without channels");
    return std::nullopt;
  }
  const Expr v = wide(x);
  const Statistics s = batch_statistics(v, eps);
  Expr value = (v - per_channel(s.mean, v)) * per_channel(s.rstd, v);
  if (weight) value = value * per_channel(*weight, v);
  if (bias) value = value + per_channel(*bias, v);
  return BatchNorm{x, value.cast(x.dtype()), s};
}

// The saved statistics have the precision that they were computed in.
Values batch_norm_values(const BatchNorm& n) {
  return {n.value.id, n.statistics.mean.id, n.statistics.rstd.id};
}

struct Running {
  NodeId mean = kInvalidNode, variance = kInvalidNode;
};
Running running_statistics(Call& c, const BatchNorm& n) {
  const double momentum = c.real("momentum", 0.1);
  const std::optional<Expr> mean = optional(c, "running_mean"),
                            variance = optional(c, "running_var");
  if (!mean || !variance || !c.ok()) return {};
  return {moved(*mean, n.statistics.mean, momentum).id,
          moved(*variance, unbiased(n.statistics.variance, wide(n.x)), momentum).id};
}

// Training: writes the running statistics in place, as the op without "functional" does.
Values batch_norm_training(Call& c) {
  const std::optional<BatchNorm> n = normalise_batch(c);
  if (!n) return {};
  const Running running = running_statistics(c, *n);
  if (running.mean != kInvalidNode) {
    c.overwrite("running_mean", running.mean);
    c.overwrite("running_var", running.variance);
  }
  return batch_norm_values(*n);
}
Values batch_norm_functional(Call& c) {
  const std::optional<BatchNorm> n = normalise_batch(c);
  if (!n) return {};
  const Running running = running_statistics(c, *n);
  Values values = batch_norm_values(*n);
  values.insert(values.end(), {running.mean, running.variance});
  return values;
}
Values batch_norm_with_update_functional(Call& c) {
  const std::optional<BatchNorm> n = normalise_batch(c);
  if (!n) return {};
  const Running running = running_statistics(c, *n);
  Values values = batch_norm_values(*n);
  // Between them scratch memory that is never read.
  values.insert(values.end(), {kInvalidNode, running.mean, running.variance});
  return values;
}

Values instance_norm(Call& c) {
  const Expr x = tensor(c, "input");
  const std::optional<Expr> weight = optional(c, "weight"), bias = optional(c, "bias");
  const std::optional<Expr> mean = optional(c, "running_mean"),
                            variance = optional(c, "running_var");
  const bool own = c.flag("use_input_stats", true);
  const double eps = c.real("eps", 1e-5);
  const Shape shape = x.shape();
  if (!c.ok() || shape.size() < 3) return {c.invalid("instance_norm needs channels and space")};
  if (own && mean)
    return {
        c.unsupported("instance_norm that tracks statistics in training is not covered; call "
                      "model.eval() before torch.export")};
  if (!own && !(mean && variance)) return {c.invalid("instance_norm without statistics")};
  std::vector<int> space(shape.size() - 2);
  std::iota(space.begin(), space.end(), 2);
  const Expr v = wide(x);
  Expr value = v;
  if (own) {
    const Expr centred = v - mean_over(v, space);
    value = centred * rsqrt(mean_over(centred * centred, space) + eps);
  } else {
    value = (v - per_channel(*mean, v)) * per_channel(rsqrt(wide(*variance) + eps), v);
  }
  if (weight) value = value * per_channel(*weight, v);
  if (bias) value = value + per_channel(*bias, v);
  return {value.cast(x.dtype()).id};
}

Values native_batch_norm_backward(Call& c) {
  const Expr grad = tensor(c, "grad_out"), x = tensor(c, "input");
  const std::optional<Expr> weight = optional(c, "weight");
  const bool training = c.flag("train", true);
  const double eps = c.real("eps");
  const std::vector<bool> mask = c.flags("output_mask");
  if (!c.ok() || x.shape().size() < 2)
    return {c.invalid("batch_norm of a tensor without channels")};
  const Expr g = wide(grad), v = wide(x);
  const Expr mean = tensor(c, training ? "save_mean" : "running_mean");
  const Expr rstd =
      training ? tensor(c, "save_invstd") : rsqrt(wide(tensor(c, "running_var")) + eps);
  if (!c.ok()) return {};
  const std::vector<int> axes = batch_axes(x.shape());
  const Expr scale = per_channel(rstd, v), value = (v - per_channel(mean, v)) * scale;
  const Expr inner = weight ? g * per_channel(*weight, v) : g;
  const Expr dx = training ? normalised_backward(inner, value, scale, axes) : inner * scale;
  const DType type = weight ? weight->dtype() : x.dtype();
  return {wanted(mask, 0, dx.cast(x.dtype())),
          wanted(mask, 1, (g * value).sum(axes, false).cast(type)),
          wanted(mask, 2, g.sum(axes, false).cast(type))};
}

constexpr Lowering kNormBackwardLowerings[] = {
    {"aten.native_layer_norm_backward.default", native_layer_norm_backward},
    {"aten._fused_rms_norm_backward.default", rms_norm_backward},
    {"aten.native_group_norm.default", native_group_norm},
    {"aten.native_group_norm_backward.default", native_group_norm_backward},
    {"aten.instance_norm.default", instance_norm},
    {"aten._native_batch_norm_legit.no_stats", batch_norm_training},
    {"aten._native_batch_norm_legit_functional.default", batch_norm_functional},
    {"aten._batch_norm_with_update_functional.default", batch_norm_with_update_functional},
    {"aten.native_batch_norm_backward.default", native_batch_norm_backward},
};

}  // namespace

Values batch_norm_in_training(Call& c) {
  return batch_norm_training(c);
}

std::span<const Lowering> norm_backward_lowerings() {
  return kNormBackwardLowerings;
}

}  // namespace kiln
