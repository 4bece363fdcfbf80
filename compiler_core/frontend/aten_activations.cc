// Activation functions, and what is the identity at inference.
#include <numbers>

#include "compiler_core/frontend/decompositions.h"

namespace kiln {
namespace {

// Runs `f` on x in its compute type and rounds once at the end, as ATen's fused kernels do.
template <class F>
Values in_compute_type(Call& c, F f) {
  const NodeId x = c.tensor("self");
  if (!c.ok()) return {};
  const DType type = c.b.dtype(x);
  return {c.b.cast(f(c.b, c.b.cast(x, compute_type(to_float_type(type)))), to_float_type(type))};
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
  return in_compute_type(c, form == "tanh" ? gelu_tanh : gelu_exact);
}

Values silu(Call& c) {
  return in_compute_type(
      c, [](GraphBuilder& b, NodeId x) { return b.binary(Op::kMul, x, sigmoid(b, x)); });
}
Values sigmoid_of(Call& c) {
  return in_compute_type(c, sigmoid);
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
  return in_compute_type(c, [slope](GraphBuilder& b, NodeId x) {
    return b.select(b.binary(Op::kLt, constant_like(b, x, 0), x), x, times(b, x, slope));
  });
}

Values identity(Call& c) {
  return {c.tensor("self")};
}

Values dropout(Call& c) {
  const NodeId x = c.tensor("input");
  if (c.flag("train", true) && c.real("p") != 0)
    return {
        c.unsupported("dropout in training mode is not covered; call model.eval() before "
                      "torch.export")};
  return {x};
}

constexpr Lowering kLowerings[] = {
    {"aten.relu.default", relu},
    {"aten.relu6.default", relu6},
    {"aten.hardtanh.default", hardtanh},
    {"aten.leaky_relu.default", leaky_relu},
    {"aten.sigmoid.default", sigmoid_of},
    {"aten.silu.default", silu},
    {"aten.gelu.default", gelu},
    {"aten.dropout.default", dropout},
    {"aten.feature_dropout.default", dropout},
    {"aten.alias.default", identity},
    {"aten.clone.default", identity},
    {"aten.contiguous.default", identity},
    {"aten.detach.default", identity},
    {"aten.detach_.default", identity},
    {"aten.lift_fresh_copy.default", identity},
};

}  // namespace

std::span<const Lowering> activation_lowerings() {
  return kLowerings;
}

}  // namespace kiln
