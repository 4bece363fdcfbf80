// Activations: ATen's where the two agree, so that a model exported both ways is one graph; else
// the formula of ONNX's operator schema, in the compute type and rounded once.
#include <cmath>

#include "compiler_core/frontend/onnx/call.h"

namespace kiln {
namespace {

template <class F>
Values computed(OnnxCall& c, F f) {
  const Expr x = c.tensor(0);
  if (!c.ok()) return {};
  return {f(wide(x)).cast(x.dtype()).id};
}

// Attributes are f32; 1/6 is not what it was.
bool is_about(double value, double expected) {
  return std::abs(value - expected) < 1e-6;
}

Values leaky_relu(OnnxCall& c) {
  return {c.aten("aten.leaky_relu.default",
                 {{"self", c.tensor(0)}, {"negative_slope", c.real("alpha", 0.01)}})
              .id};
}
Values elu(OnnxCall& c) {
  return {c.aten("aten.elu.default", {{"self", c.tensor(0)}, {"alpha", c.real("alpha", 1)}}).id};
}
Values celu(OnnxCall& c) {
  return {c.aten("aten.celu.default", {{"self", c.tensor(0)}, {"alpha", c.real("alpha", 1)}}).id};
}
Values selu(OnnxCall& c) {
  const double alpha = c.real("alpha", 1.67326319217681884765625);
  const double gamma = c.real("gamma", 1.05070102214813232421875);
  if (is_about(alpha, 1.6732632) && is_about(gamma, 1.0507010))
    return {c.aten("aten.selu.default", {{"self", c.tensor(0)}}).id};
  return computed(c, [&](Expr x) { return choose(x > 0, x, (exp(x) - 1) * alpha) * gamma; });
}
Values gelu(OnnxCall& c) {
  return {c.aten("aten.gelu.default",
                 {{"self", c.tensor(0)}, {"approximate", c.text("approximate", "none")}})
              .id};
}
Values softplus(OnnxCall& c) {
  return {c.aten("aten.softplus.default", {{"self", c.tensor(0)}}).id};
}
Values softsign(OnnxCall& c) {
  return computed(c, [](Expr x) { return x / (abs(x) + 1); });
}
Values hard_sigmoid(OnnxCall& c) {
  const double alpha = c.real("alpha", 0.2), beta = c.real("beta", 0.5);
  if (is_about(alpha, 1.0 / 6) && beta == 0.5)
    return {c.aten("aten.hardsigmoid.default", {{"self", c.tensor(0)}}).id};
  return computed(c, [&](Expr x) { return max(min(x * alpha + beta, 1), 0); });
}
Values thresholded_relu(OnnxCall& c) {
  const double alpha = c.real("alpha", 1);
  return computed(c, [&](Expr x) { return choose(x > alpha, x, 0); });
}
Values shrink(OnnxCall& c) {
  const double lambda = c.real("lambd", 0.5), bias = c.real("bias", 0);
  return computed(c, [&](Expr x) {
    return choose(x < -lambda, x + bias, choose(x > lambda, x - bias, x.like(0)));
  });
}
// x * sigmoid(alpha * x), of opset 24; SiLU for alpha 1.
Values swish(OnnxCall& c) {
  const double alpha = c.real("alpha", 1);
  if (alpha == 1) return {c.aten("aten.silu.default", {{"self", c.tensor(0)}}).id};
  return computed(c, [&](Expr x) { return x * sigmoid(x * alpha); });
}

// The slope broadcasts to x; where it is one for all, or one a channel, it is ATen's.
Values prelu(OnnxCall& c) {
  const Expr x = c.tensor(0), slope = c.tensor(1);
  if (!c.ok()) return {};
  return {choose(x < 0, x * slope, x).id};
}

constexpr OnnxLowering kOnnxActivationLowerings[] = {
    {"LeakyRelu", leaky_relu},
    {"Elu", elu},
    {"Celu", celu},
    {"Selu", selu},
    {"Gelu", gelu},
    {"Softplus", softplus},
    {"Softsign", softsign},
    {"HardSigmoid", hard_sigmoid},
    {"Shrink", shrink},
    {"ThresholdedRelu", thresholded_relu},
    {"PRelu", prelu},
    {"Swish", swish},
};

}  // namespace

std::span<const OnnxLowering> onnx_activation_lowerings() {
  return kOnnxActivationLowerings;
}

}  // namespace kiln
