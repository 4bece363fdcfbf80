// Softmax and the norms, as inference has them.
#include "compiler_core/frontend/onnx/call.h"

namespace kiln {
namespace {

Values softmax_by(OnnxCall& c, std::string_view target) {
  const Expr x = c.tensor(0);
  if (!c.ok()) return {};
  const Shape shape = x.shape();
  if (c.version() >= 13) {
    const int axis = c.axis(c.integer("axis", -1), shape.size());
    return {c.aten(target, {{"self", x}, {"dim", axis}}).id};
  }
  // Until opset 12 over all axes from `axis` on, as one.
  const int axis = c.axis(c.integer("axis", 1), shape.size());
  if (!c.ok()) return {};
  const Expr rows = x.reshape({numel(Shape(shape.begin(), shape.begin() + axis)),
                               numel(Shape(shape.begin() + axis, shape.end()))});
  return {c.aten(target, {{"self", rows}, {"dim", 1}}).reshape(shape).id};
}
Values softmax_of(OnnxCall& c) {
  return softmax_by(c, "aten.softmax.int");
}
Values log_softmax_of(OnnxCall& c) {
  return softmax_by(c, "aten.log_softmax.int");
}
// 1 at the first maximum along the axis.
Values hardmax(OnnxCall& c) {
  const Expr x = c.tensor(0);
  if (!c.ok()) return {};
  const Shape shape = x.shape();
  if (c.version() < 13) return {c.unsupported("before opset 13 it is not covered")};
  const int axis = c.axis(c.integer("axis", -1), shape.size());
  const Expr first = c.aten("aten.argmax.default", {{"self", x}, {"dim", axis}, {"keepdim", true}});
  if (!c.ok()) return {};
  const Expr at = {&c.b, coordinate(c.b, shape, static_cast<size_t>(axis))};
  return {(at == first.broadcast(shape)).cast(x.dtype()).id};
}

Values batch_norm(OnnxCall& c) {
  if (c.flag("training_mode", false))
    return {c.unsupported("training mode is not covered; export with model.eval()")};
  return {c.aten("aten.batch_norm.default", {{"input", c.tensor(0)},
                                             {"weight", c.tensor(1)},
                                             {"bias", c.tensor(2)},
                                             {"running_mean", c.tensor(3)},
                                             {"running_var", c.tensor(4)},
                                             {"training", false},
                                             {"momentum", c.real("momentum", 0.9)},
                                             {"eps", c.real("epsilon", 1e-5)}})
              .id};
}

Values instance_norm(OnnxCall& c) {
  return {c.aten("aten.instance_norm.default", {{"input", c.tensor(0)},
                                                {"weight", c.tensor(1)},
                                                {"bias", c.tensor(2)},
                                                {"use_input_stats", true},
                                                {"eps", c.real("epsilon", 1e-5)}})
              .id};
}

// The trailing axes from `axis` on.
std::optional<std::vector<Dim>> trailing(OnnxCall& c, const Shape& shape) {
  const int axis = c.axis(c.integer("axis", -1), shape.size());
  if (!c.ok()) return std::nullopt;
  return std::vector<Dim>(shape.begin() + axis, shape.end());
}

// Statistics are taken in stash_type, f32 unless it says otherwise; Kiln always takes them in the
// compute type, which is at least that.
Values layer_norm(OnnxCall& c) {
  const Expr x = c.tensor(0);
  if (!c.ok()) return {};
  const auto sizes = trailing(c, x.shape());
  if (!sizes) return {};
  return c.aten_values("aten.native_layer_norm.default", {{"input", x},
                                                          {"normalized_shape", *sizes},
                                                          {"weight", c.tensor(1)},
                                                          {"bias", c.optional_tensor(2)},
                                                          {"eps", c.real("epsilon", 1e-5)}});
}

Values rms_norm(OnnxCall& c) {
  const Expr x = c.tensor(0);
  if (!c.ok()) return {};
  const auto sizes = trailing(c, x.shape());
  if (!sizes) return {};
  return {c.aten("aten.rms_norm.default", {{"input", x},
                                           {"normalized_shape", *sizes},
                                           {"weight", c.optional_tensor(1)},
                                           {"eps", c.real("epsilon", 1e-5)}})
              .id};
}

// Until opset 20 scale and bias are one for each group, then one for each channel.
Values group_norm(OnnxCall& c) {
  const Expr x = c.tensor(0);
  Expr scale = c.tensor(1), bias = c.tensor(2);
  const int64_t groups = c.required_integer("num_groups");
  if (!c.ok()) return {};
  const Shape shape = x.shape();
  if (shape.size() < 2 || groups < 1) return {c.invalid("needs channels, in groups")};
  if (c.version() < 21) {
    const auto channels = Dim::divide_exact(shape[1], groups);
    if (!channels) return {c.invalid("the channels do not divide into the groups")};
    const auto spread = [&](Expr each) {
      const int axis = 0;
      const NodeId rows = c.b.broadcast_in(each.id, {Dim(groups), *channels}, std::span(&axis, 1));
      return Expr{&c.b, c.b.reshape(rows, {shape[1]})};
    };
    scale = spread(scale);
    bias = spread(bias);
  }
  return {c.aten("aten.group_norm.default", {{"input", x},
                                             {"num_groups", groups},
                                             {"weight", scale},
                                             {"bias", bias},
                                             {"eps", c.real("epsilon", 1e-5)}})
              .id};
}

Values lp_normalisation(OnnxCall& c) {
  const Expr x = c.tensor(0);
  if (!c.ok()) return {};
  const int64_t p = c.integer("p", 2);
  if (p != 1 && p != 2) return {c.invalid("attribute 'p' is 1 or 2")};
  const int axis = c.axis(c.integer("axis", -1), x.shape().size());
  if (!c.ok()) return {};
  const Expr w = wide(x);
  const Expr norm = p_norm(w, static_cast<double>(p), {axis}, true);
  // Nothing is divided by a norm of 0.
  return {choose(norm == 0, w.like(0), w / norm).cast(x.dtype()).id};
}

Values mean_variance_normalisation(OnnxCall& c) {
  const Expr x = c.tensor(0);
  if (!c.ok()) return {};
  const std::vector<int> axes =
      c.axes(c.list("axes").value_or(std::vector<int64_t>{0, 2, 3}), x.shape().size());
  if (!c.ok()) return {};
  const Expr w = wide(x);
  const Expr centred = w - Expr{&c.b, mean(c.b, w.id, axes)};
  const Expr variance = {&c.b, mean(c.b, (centred * centred).id, axes)};
  return {(centred / (sqrt(variance) + 1e-9)).cast(x.dtype()).id};
}

constexpr OnnxLowering kOnnxNormalisationLowerings[] = {
    {"Softmax", softmax_of},
    {"LogSoftmax", log_softmax_of},
    {"Hardmax", hardmax},
    {"BatchNormalization", batch_norm},
    {"InstanceNormalization", instance_norm},
    {"LayerNormalization", layer_norm},
    {"RMSNormalization", rms_norm},
    {"GroupNormalization", group_norm},
    {"LpNormalization", lp_normalisation},
    {"MeanVarianceNormalization", mean_variance_normalisation},
};

}  // namespace

std::span<const OnnxLowering> onnx_normalisation_lowerings() {
  return kOnnxNormalisationLowerings;
}

}  // namespace kiln
