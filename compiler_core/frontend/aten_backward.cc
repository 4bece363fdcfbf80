// Derivatives as AOTAutograd writes them into training graphs: grad_output times the derivative, in
// the compute type, rounded once.
#include <cmath>
#include <numbers>

#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

// `f` of the gradient and one saved tensor.
template <class F>
Values backward_of(Call& c, F f, std::string_view saved = "self") {
  const Expr grad = tensor(c, "grad_output"), x = tensor(c, saved);
  if (!c.ok()) return {};
  const Operand both[] = {{grad.id, {}}, {x.id, {}}};
  const DType type = result_type(c.b, both), compute = compute_type(type);
  return {f(grad.cast(compute), x.cast(compute)).cast(type).id};
}

Values threshold_backward(Call& c) {
  const double threshold = c.real("threshold");
  return backward_of(c, [&](Expr g, Expr x) { return choose(x <= threshold, 0, g); });
}
Values tanh_backward(Call& c) {
  return backward_of(
      c, [](Expr g, Expr y) { return g * (1 - y * y); }, "output");
}
Values sigmoid_backward(Call& c) {
  return backward_of(
      c, [](Expr g, Expr y) { return g * ((1 - y) * y); }, "output");
}
Values silu_backward(Call& c) {
  return backward_of(c, [](Expr g, Expr x) {
    const Expr s = sigmoid(x);
    return g * s * (x * (1 - s) + 1);
  });
}

Expr gelu_slope(Expr x) {
  const Expr cdf = (apply(Op::kErf, x * (std::numbers::sqrt2 / 2)) + 1) * 0.5;
  const double scale = std::numbers::inv_sqrtpi / std::numbers::sqrt2;  // 1 / sqrt(2 pi)
  return cdf + x * (exp(x * x * -0.5) * scale);
}
Expr gelu_tanh_slope(Expr x) {
  const double scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
  constexpr double kCubic = 0.044715;
  const Expr square = x * x, t = tanh((x + x * square * kCubic) * scale);
  const Expr inner = (square * (3 * kCubic) + 1) * scale;
  return (t + 1) * 0.5 + x * 0.5 * (1 - t * t) * inner;
}
Values gelu_backward(Call& c) {
  const bool by_tanh = c.text("approximate", "none") == "tanh";
  return backward_of(
      c, [&](Expr g, Expr x) { return g * (by_tanh ? gelu_tanh_slope(x) : gelu_slope(x)); });
}

Values hardtanh_backward(Call& c) {
  const double low = c.real("min_val"), high = c.real("max_val");
  return backward_of(c, [&](Expr g, Expr x) { return choose((x <= low) | (x >= high), 0, g); });
}
Values leaky_relu_backward(Call& c) {
  const double slope = c.real("negative_slope");
  return backward_of(c, [&](Expr g, Expr x) { return choose(x > 0, g, g * slope); });
}
Values elu_backward(Call& c) {
  const double alpha = c.real("alpha"), scale = c.real("scale"), inner = c.real("input_scale");
  // Forward saved either its result or its operand.
  const bool is_result = c.flag("is_result", false);
  return backward_of(
      c,
      [&](Expr g, Expr x) {
        const Expr below = is_result ? g * inner * (x + alpha * scale)
                                     : g * (inner * alpha * scale) * exp(x * inner);
        return choose(x <= 0, below, g * scale);
      },
      "self_or_result");
}
Values hardswish_backward(Call& c) {
  return backward_of(
      c, [](Expr g, Expr x) { return choose(x <= -3, 0, choose(x < 3, g * (x / 3 + 0.5), g)); });
}
Values hardsigmoid_backward(Call& c) {
  return backward_of(c, [](Expr g, Expr x) { return choose((x > -3) & (x < 3), g / 6, 0); });
}
Values softplus_backward(Call& c) {
  const double beta = c.real("beta"), threshold = c.real("threshold");
  return backward_of(
      c, [&](Expr g, Expr x) { return choose(x * beta > threshold, g, g * sigmoid(x * beta)); });
}
Values mish_backward(Call& c) {
  return backward_of(c, [](Expr g, Expr x) {
    const Expr t = tanh(max(x, 0) + log1p(exp(-abs(x))));
    return g * (t + x * sigmoid(x) * (1 - t * t));
  });
}
Values log_sigmoid_backward(Call& c) {
  return backward_of(c, [](Expr g, Expr x) { return g * sigmoid(-x); });
}
Values shrink_backward(Call& c) {
  const double lambda = c.real("lambd");
  return backward_of(c,
                     [&](Expr g, Expr x) { return choose((x >= -lambda) & (x <= lambda), 0, g); });
}
Values hardshrink_backward(Call& c) {
  const double lambda = c.real("lambd");
  const Expr grad = tensor(c, "grad_out"), x = tensor(c, "self");
  return {c.ok() ? choose((x >= -lambda) & (x <= lambda), 0, grad).id : kInvalidNode};
}

Values glu_backward(Call& c) {
  GraphBuilder& b = c.b;
  const Expr grad = tensor(c, "grad_output"), x = tensor(c, "self");
  const int axis = c.axis("dim", x.shape().size());
  if (!c.ok() || x.shape().empty()) return {c.invalid("glu of a scalar")};
  const Result<Dim> half = Dim::divide_exact(x.shape()[static_cast<size_t>(axis)], 2);
  if (!half) return {c.invalid("glu needs an axis of even size")};
  const Expr value = wide({&b, b.slice(x.id, axis, 0, *half)});
  const Expr gate = sigmoid(wide({&b, b.slice(x.id, axis, *half, *half)}));
  const Expr g = wide(grad);
  const NodeId parts[] = {(g * gate).cast(x.dtype()).id,
                          (g * value * gate * (1 - gate)).cast(x.dtype()).id};
  return {b.concat(parts, axis)};
}

Values prelu_backward(Call& c) {
  const Expr grad = tensor(c, "grad_output"), x = tensor(c, "self"), weight = tensor(c, "weight");
  if (!c.ok()) return {};
  const Expr g = wide(grad), v = wide(x);
  // ATen gives the weight's gradient element by element; the caller sums.
  return {choose(v > 0, g, wide(weight) * g).cast(x.dtype()).id,
          choose(v > 0, 0, v * g).cast(x.dtype()).id};
}

Expr row_sum(Expr x, int axis) {
  return x.shape().empty() ? x : x.sum({axis});
}
template <bool of_logs>
Values softmax_backward(Call& c) {
  const Expr grad = tensor(c, "grad_output"), y = tensor(c, "output");
  const int axis = c.axis("dim", y.shape().size());
  const DType type = c.dtype("input_dtype", grad.dtype());
  if (!c.ok()) return {};
  const DType compute = compute_type(grad.dtype());
  const Expr g = grad.cast(compute), out = y.cast(compute);
  const Expr result =
      of_logs ? g - exp(out) * row_sum(g, axis) : g * out - out * row_sum(g * out, axis);
  return {result.cast(type).id};
}

enum LossReduction : int64_t { kOfEach = 0, kOfMean = 1, kOfSum = 2 };

// The gradient of one element of a loss that was reduced.
Expr spread(Call& c, Expr grad, Expr x) {
  if (c.integer("reduction", kOfMean) != kOfMean) return grad;
  return grad / Expr{&c.b, size_value(c.b, numel(x.shape()), grad.dtype())};
}
template <class F>
Values loss_backward(Call& c, F f) {
  const Expr grad = tensor(c, "grad_output"), x = tensor(c, "self"), target = tensor(c, "target");
  if (!c.ok()) return {};
  const DType compute = compute_type(x.dtype());
  const Expr v = x.cast(compute), g = spread(c, grad.cast(compute), v);
  return {(g * f(v, target.cast(compute))).broadcast(x.shape()).cast(x.dtype()).id};
}
Values mse_loss_backward(Call& c) {
  return loss_backward(c, [](Expr x, Expr y) { return (x - y) * 2; });
}
Values l1_loss_backward(Call& c) {
  return loss_backward(c, [](Expr x, Expr y) { return sign(x - y); });
}
Values smooth_l1_loss_backward(Call& c) {
  const double beta = c.real("beta");
  return loss_backward(c, [&](Expr x, Expr y) {
    const Expr d = x - y;
    if (beta == 0) return sign(d);
    return min(max(d / beta, -1), 1);
  });
}
Values huber_loss_backward(Call& c) {
  const double delta = c.real("delta");
  return loss_backward(c, [&](Expr x, Expr y) { return min(max(x - y, -delta), delta); });
}
Values binary_cross_entropy_backward(Call& c) {
  constexpr double kLeast = 1e-12;  // as ATen
  return loss_backward(c, [&](Expr x, Expr y) {
    const Expr slope = (x - y) / max((1 - x) * x, kLeast);
    const NodeId weight = c.optional_tensor("weight");
    return weight == kInvalidNode ? slope : slope * Expr{&c.b, weight}.cast(slope.dtype());
  });
}

// -weight[target] at the target's class, 0 elsewhere.
Values nll_loss_backward(Call& c) {
  GraphBuilder& b = c.b;
  const Expr grad = tensor(c, "grad_output"), x = tensor(c, "self");
  const Expr target = tensor(c, "target").cast(DType::kI64);
  const Expr total = tensor(c, "total_weight");
  const NodeId weight = c.optional_tensor("weight");
  const int64_t reduction = c.integer("reduction", kOfMean),
                ignored = c.integer("ignore_index", -100);
  const Shape shape = x.shape();
  if (!c.ok() || shape.empty()) return {c.invalid("the loss of a scalar")};
  const int axis = shape.size() == 1 ? 0 : 1;
  const DType compute = compute_type(x.dtype());
  Shape column = shape;
  column[static_cast<size_t>(axis)] = 1;
  if (numel(target.shape()) != numel(column)) return {c.invalid("the target does not fit")};
  const Expr wanted = target.reshape(column);
  Expr g = grad.cast(compute);
  if (reduction == kOfEach) g = g.reshape(column);
  if (reduction == kOfMean) g = g / total.cast(compute);
  const Expr place{&b, coordinate(b, shape, static_cast<size_t>(axis))};
  if (weight != kInvalidNode)
    g = g * Expr{&b, b.broadcast_in(b.cast(weight, compute), shape, std::span(&axis, 1))};
  const Expr here = (place == wanted) & (wanted != static_cast<double>(ignored));
  return {choose(here, -g, 0).broadcast(shape).cast(x.dtype()).id};
}

Values native_dropout_backward(Call& c) {
  const Expr grad = tensor(c, "grad_output"), mask = tensor(c, "mask").cast(DType::kBool);
  const double scale = c.real("scale");
  if (!c.ok()) return {};
  return {choose(mask, wide(grad) * scale, 0).cast(grad.dtype()).id};
}

// Zeros with the gradient in place of the slice.
Values slice_backward(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId grad = c.tensor("grad_output");
  const Shape shape = c.sizes("input_sizes");
  const int axis = c.axis("dim", shape.size());
  if (!c.ok() || shape.empty()) return {c.invalid("a scalar cannot be sliced")};
  const size_t at = static_cast<size_t>(axis);
  const Dim start = slice_bound(c, c.size("start", Dim(0)), shape[at]);
  const Dim count = b.shape(grad)[at];
  const int64_t step = c.integer("step", 1);
  std::vector<Dim> low(shape.size(), Dim(0)), high = low;
  low[at] = start;
  if (step == 1) {
    high[at] = shape[at] - start - count;
    return {b.pad(grad, low, high, constant_bits(b.dtype(grad), 0))};
  }
  // Each element with the zeros behind it, trimmed to fit.
  if (!count.is_constant() || !start.is_constant() || !shape[at].is_constant())
    return {c.unsupported("the gradient of a slice of symbolic size with a step is not covered")};
  Shape separate = b.shape(grad), merged = separate;
  separate.insert(separate.begin() + axis + 1, 1);
  std::vector<Dim> none(separate.size(), Dim(0)), behind = none;
  behind[at + 1] = step - 1;
  merged[at] = count * Dim(step);
  NodeId spread = b.reshape(
      b.pad(b.reshape(grad, separate), none, behind, constant_bits(b.dtype(grad), 0)), merged);
  const int64_t room = shape[at].constant() - start.constant();
  const int64_t have = count.constant() * step;
  if (have > room) spread = b.slice(spread, axis, 0, room);
  high[at] = std::max<int64_t>(room - have, 0);
  return {b.pad(spread, low, high, constant_bits(b.dtype(grad), 0))};
}
Values select_backward(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId grad = c.tensor("grad_output");
  const Shape shape = c.sizes("input_sizes");
  const int axis = c.axis("dim", shape.size());
  if (!c.ok() || shape.empty()) return {c.invalid("a scalar has no elements to select")};
  const size_t at = static_cast<size_t>(axis);
  Dim index = c.size("index");
  if (index.is_constant() && index.constant() < 0) index = index + shape[at];
  Shape one = shape;
  one[at] = 1;
  std::vector<Dim> low(shape.size(), Dim(0)), high = low;
  low[at] = index;
  high[at] = shape[at] - Dim(1) - index;
  return {b.pad(b.reshape(grad, one), low, high, constant_bits(b.dtype(grad), 0))};
}

// Output o averages the inputs from floor(o in / out) to ceil((o + 1) in / out): as a matrix
// [out, in] of their weights.
Expr averaging_weights(GraphBuilder& b, const Dim& in, const Dim& out, DType type) {
  const Shape shape = {out, in};
  const Expr row{&b, coordinate(b, shape, 0)}, place{&b, coordinate(b, shape, 1)};
  const auto size = [&](const Dim& dim) { return Expr{&b, size_value(b, dim, DType::kI64)}; };
  const Expr start = row * size(in) / size(out);
  const Expr end = ((row + 1) * size(in) + (size(out) - 1)) / size(out);
  const Expr inside = (start <= place) & (place < end);
  return choose(inside, 1 / (end - start).cast(type), 0);
}
Values adaptive_avg_pool2d_backward(Call& c) {
  GraphBuilder& b = c.b;
  const Expr grad = tensor(c, "grad_output"), x = tensor(c, "self");
  const Shape in = x.shape(), out = grad.shape();
  if (!c.ok() || in.size() < 3 || out.size() != in.size()) return {c.invalid("needs an image")};
  const size_t h = in.size() - 2, w = in.size() - 1;
  const Expr g = wide(grad);
  const Expr tall = averaging_weights(b, in[h], out[h], g.dtype());
  const Expr broad = averaging_weights(b, in[w], out[w], g.dtype());
  const NodeId wide_rows = matrix_product(b, g.id, broad.id);
  return {b.cast(matrix_product(b, swap_axes(b, tall.id, 0, 1), wide_rows), x.dtype())};
}

constexpr Lowering kBackwardLowerings[] = {
    {"aten.threshold_backward.default", threshold_backward},
    {"aten.tanh_backward.default", tanh_backward},
    {"aten.sigmoid_backward.default", sigmoid_backward},
    {"aten.silu_backward.default", silu_backward},
    {"aten.gelu_backward.default", gelu_backward},
    {"aten.hardtanh_backward.default", hardtanh_backward},
    {"aten.leaky_relu_backward.default", leaky_relu_backward},
    {"aten.elu_backward.default", elu_backward},
    {"aten.hardswish_backward.default", hardswish_backward},
    {"aten.hardsigmoid_backward.default", hardsigmoid_backward},
    {"aten.softplus_backward.default", softplus_backward},
    {"aten.mish_backward.default", mish_backward},
    {"aten.log_sigmoid_backward.default", log_sigmoid_backward},
    {"aten.softshrink_backward.default", shrink_backward},
    {"aten.hardshrink_backward.default", hardshrink_backward},
    {"aten.glu_backward.default", glu_backward},
    {"aten._prelu_kernel_backward.default", prelu_backward},
    {"aten._softmax_backward_data.default", softmax_backward<false>},
    {"aten._log_softmax_backward_data.default", softmax_backward<true>},
    {"aten.mse_loss_backward.default", mse_loss_backward},
    {"aten.l1_loss_backward.default", l1_loss_backward},
    {"aten.smooth_l1_loss_backward.default", smooth_l1_loss_backward},
    {"aten.huber_loss_backward.default", huber_loss_backward},
    {"aten.binary_cross_entropy_backward.default", binary_cross_entropy_backward},
    {"aten.nll_loss_backward.default", nll_loss_backward},
    {"aten.nll_loss2d_backward.default", nll_loss_backward},
    {"aten.native_dropout_backward.default", native_dropout_backward},
    {"aten._adaptive_avg_pool2d_backward.default", adaptive_avg_pool2d_backward},
    {"aten.slice_backward.default", slice_backward},
    {"aten.select_backward.default", select_backward},
};

}  // namespace

std::span<const Lowering> backward_lowerings() {
  return kBackwardLowerings;
}

}  // namespace kiln
