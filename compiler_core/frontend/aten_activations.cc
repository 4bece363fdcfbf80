// Activation functions, and ops that are the identity at inference.
#include <numbers>

#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

// Runs `f` on x in its compute type and rounds once at the end, as ATen's fused kernels do.
template <class F>
Values on_node(Call& c, F f) {
  return in_compute_type(c, [&](Expr x) { return Expr{x.b, f(*x.b, x.id)}; });
}

NodeId times(GraphBuilder& b, NodeId x, double factor) {
  return b.binary(Op::kMul, x, constant_like(b, x, factor));
}
NodeId plus(GraphBuilder& b, NodeId x, double term) {
  return b.binary(Op::kAdd, x, constant_like(b, x, term));
}

NodeId gelu_exact(GraphBuilder& b, NodeId x) {
  const NodeId cdf = plus(b, b.unary(Op::kErf, times(b, x, std::numbers::sqrt2 / 2)), 1);
  return b.binary(Op::kMul, times(b, x, 0.5), cdf);
}

NodeId gelu_tanh(GraphBuilder& b, NodeId x) {
  const double scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
  const NodeId cube = b.binary(Op::kMul, b.binary(Op::kMul, x, x), x);
  const NodeId inner = times(b, b.binary(Op::kAdd, x, times(b, cube, 0.044715)), scale);
  return b.binary(Op::kMul, times(b, x, 0.5), plus(b, b.unary(Op::kTanh, inner), 1));
}

Values gelu(Call& c) {
  const std::string_view form = c.text("approximate", "none");
  if (form != "none" && form != "tanh")
    return {c.invalid("there is no approximation '" + std::string(form) + "' of gelu")};
  return on_node(c, form == "tanh" ? gelu_tanh : gelu_exact);
}

Values silu(Call& c) {
  return in_compute_type(c, [](Expr x) { return x * sigmoid(x); });
}
Values sigmoid_of(Call& c) {
  return in_compute_type(c, [](Expr x) { return sigmoid(x); });
}

Values relu(Call& c) {
  const NodeId x = c.tensor("self");
  return {c.b.binary(Op::kMax, x, constant_like(c.b, x, 0))};
}

Values hardtanh(Call& c) {
  const NodeId x = c.tensor("self");
  const double low = c.real("min_val", -1), high = c.real("max_val", 1);
  if (!c.ok()) return {};
  const NodeId raised = c.b.binary(Op::kMax, x, constant_like(c.b, x, low));
  return {c.b.binary(Op::kMin, raised, constant_like(c.b, x, high))};
}
Values relu6(Call& c) {
  const NodeId x = c.tensor("self");
  const NodeId raised = c.b.binary(Op::kMax, x, constant_like(c.b, x, 0));
  return {c.b.binary(Op::kMin, raised, constant_like(c.b, x, 6))};
}

Values leaky_relu(Call& c) {
  const double slope = c.real("negative_slope", 0.01);
  return in_compute_type(c, [&](Expr x) { return choose(x > 0, x, x * slope); });
}
// The slope of the negative side drawn at random in training, the middle of its range otherwise.
Values rrelu(Call& c) {
  const double low = c.real("lower", 0.125), high = c.real("upper", 1.0 / 3);
  if (c.flag("training", false))
    return {c.unsupported("rrelu in training mode is not covered; use leaky_relu")};
  return in_compute_type(c, [&](Expr x) { return choose(x >= 0, x, x * ((low + high) / 2)); });
}

// scale * (x, or alpha * (exp(input_scale * x) - 1) where x is not positive).
Values elu(Call& c) {
  const double alpha = c.real("alpha", 1), scale = c.real("scale", 1),
               input_scale = c.real("input_scale", 1);
  return in_compute_type(c, [&](Expr x) {
    return choose(x > 0, x * scale, expm1(x * input_scale) * (alpha * scale));
  });
}
Values celu(Call& c) {
  const double alpha = c.real("alpha", 1);
  return in_compute_type(c,
                         [&](Expr x) { return choose(x > 0, x, expm1(x * (1 / alpha)) * alpha); });
}
Values selu(Call& c) {
  // Klambauer et al., "Self-Normalizing Neural Networks" (2017).
  constexpr double kAlpha = 1.6732632423543772848170429916717,
                   kScale = 1.0507009873554804934193349852946;
  return in_compute_type(
      c, [](Expr x) { return choose(x > 0, x * kScale, expm1(x) * (kAlpha * kScale)); });
}

Values hardswish(Call& c) {
  return in_compute_type(c, [](Expr x) { return x * min(max(x + 3, 0), 6) / 6; });
}
Values hardsigmoid(Call& c) {
  return in_compute_type(c, [](Expr x) { return min(max(x + 3, 0), 6) / 6; });
}

// log(1 + e^(beta x)) / beta, and x itself once that is the same.
Expr softplus_of(Expr x, double beta, double threshold) {
  const Expr scaled = x * beta;
  return choose(scaled > threshold, x, log1p(exp(scaled)) / beta);
}
Values softplus(Call& c) {
  const double beta = c.real("beta", 1), threshold = c.real("threshold", 20);
  return in_compute_type(c, [&](Expr x) { return softplus_of(x, beta, threshold); });
}
Values mish(Call& c) {
  return in_compute_type(c, [](Expr x) {
    // log1p(exp(x)) without overflow.
    return x * tanh(max(x, 0) + log1p(exp(-abs(x))));
  });
}
Values log_sigmoid(Call& c) {
  // The second output is scratch memory of ATen's CPU kernel.
  const NodeId x = c.tensor("self");
  Values values = in_compute_type(c, [](Expr v) { return min(v, 0) - log1p(exp(-abs(v))); });
  values.push_back(c.ok() ? constant_like(c.b, x, 0) : kInvalidNode);
  return values;
}

// One weight, or one for each channel (axis 1).
Values prelu(Call& c) {
  GraphBuilder& b = c.b;
  const Expr x = tensor(c, "self"), weight = tensor(c, "weight");
  if (!c.ok()) return {};
  Expr slope = wide(weight);
  if (numel(weight.shape()).is(1)) {
    slope = slope.reshape({});
  } else if (weight.shape().size() == 1) {
    const int channels = x.shape().size() > 1 ? 1 : 0;
    slope = {&b, b.broadcast_in(slope.id, x.shape(), std::span(&channels, 1))};
  }
  return in_compute_type(c, [&](Expr v) { return choose(v > 0, v, slope * v); });
}

Values glu(Call& c) {
  GraphBuilder& b = c.b;
  const Expr x = tensor(c, "self");
  const int axis = c.axis("dim", x.shape().size(), -1);
  if (!c.ok() || x.shape().empty()) return {c.invalid("glu of a scalar")};
  const Result<Dim> half = Dim::divide_exact(x.shape()[static_cast<size_t>(axis)], 2);
  if (!half) return {c.invalid("glu needs an axis of even size")};
  const Expr value = wide({&b, b.slice(x.id, axis, 0, *half)});
  const Expr gate = wide({&b, b.slice(x.id, axis, *half, *half)});
  return {(value * sigmoid(gate)).cast(x.dtype()).id};
}

// x above the threshold, `value` elsewhere; a NaN stays.
Values threshold(Call& c) {
  const Expr x = tensor(c, "self");
  const double limit = c.real("threshold"), value = c.real("value");
  return {c.ok() ? choose(x <= limit, value, x).id : kInvalidNode};
}
Values hardshrink(Call& c) {
  const double lambda = c.real("lambd", 0.5);
  const Expr x = tensor(c, "self");
  return {c.ok() ? choose((x >= -lambda) & (x <= lambda), 0, x).id : kInvalidNode};
}
Values softshrink(Call& c) {
  const double lambda = c.real("lambd", 0.5);
  return in_compute_type(c, [&](Expr x) {
    return choose(x > lambda, x - lambda, choose(x < -lambda, x + lambda, x * 0));
  });
}

Values identity(Call& c) {
  return {c.tensor("self")};
}

constexpr Lowering kActivationLowerings[] = {
    {"aten.relu.default", relu},
    {"aten.relu6.default", relu6},
    {"aten.hardtanh.default", hardtanh},
    {"aten.leaky_relu.default", leaky_relu},
    {"aten.sigmoid.default", sigmoid_of},
    {"aten.silu.default", silu},
    {"aten.gelu.default", gelu},
    {"aten.rrelu.default", rrelu},
    {"aten.elu.default", elu},
    {"aten.celu.default", celu},
    {"aten.selu.default", selu},
    {"aten.hardswish.default", hardswish},
    {"aten.hardsigmoid.default", hardsigmoid},
    {"aten.softplus.default", softplus},
    {"aten.mish.default", mish},
    {"aten.log_sigmoid.default", log_sigmoid},
    {"aten.log_sigmoid_forward.default", log_sigmoid},
    {"aten.prelu.default", prelu},
    {"aten._prelu_kernel.default", prelu},
    {"aten.glu.default", glu},
    {"aten.threshold.default", threshold},
    {"aten.hardshrink.default", hardshrink},
    {"aten.softshrink.default", softshrink},
    {"aten.positive.default", identity},
    {"aten.clone.default", identity},
    {"aten.alias.default", identity},
    {"aten.contiguous.default", identity},
    {"aten.detach.default", identity},
    {"aten.detach_.default", identity},
    {"aten.lift_fresh_copy.default", identity},
    {"aten.lift_fresh.default", identity},
    {"aten.lift.default", identity},
    {"aten.alias_copy.default", identity},
    {"aten.detach_copy.default", identity},
    {"aten.resolve_conj.default", identity},
    {"aten.resolve_neg.default", identity},
};

}  // namespace

std::span<const Lowering> activation_lowerings() {
  return kActivationLowerings;
}

}  // namespace kiln
