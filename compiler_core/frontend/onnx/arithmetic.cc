// Arithmetic, comparisons, logic and casts.
#include <algorithm>

#include "compiler_core/frontend/onnx/call.h"

namespace kiln {
namespace {

// One of ATen's ops of two tensors; a number stays one, as exporters of PyTorch had it.
Values binary(OnnxCall& c, std::string_view target) {
  return {c.aten(target, {{"self", c.tensor(0)}, {"other", c.tensor(1)}}).id};
}

Values add(OnnxCall& c) {
  return binary(c, "aten.add.Tensor");
}
Values subtract(OnnxCall& c) {
  return binary(c, "aten.sub.Tensor");
}
Values multiply(OnnxCall& c) {
  return binary(c, "aten.mul.Tensor");
}

// Integers are divided as C does; ATen would give floats.
Values divide(OnnxCall& c) {
  const Expr x = c.tensor(0), y = c.tensor(1);
  if (!c.ok()) return {};
  if (is_float(x.dtype())) return binary(c, "aten.div.Tensor");
  return {(x / y).id};
}

Values modulo(OnnxCall& c) {
  return binary(c, c.flag("fmod", false) ? "aten.fmod.Tensor" : "aten.remainder.Tensor");
}

// The result has the base's type, whatever the exponent's.
Values power(OnnxCall& c) {
  const Expr x = c.tensor(0);
  const DType type = x.dtype();
  const std::optional<double> exponent = c.number(1);
  const Expr y = c.tensor(1);
  if (!c.ok()) return {};
  // Negative powers of integers, and powers of integers that are none, are taken as floats.
  const bool whole = is_integer(type) && is_integer(y.dtype()) && (!exponent || *exponent >= 0);
  const Expr base = is_float(type) || whole ? x : x.cast(DType::kF64);
  if (exponent && y.shape().size() <= x.shape().size()) {
    const bool number = is_float(base.dtype());
    const AtenArgument power = number ? AtenArgument("exponent", *exponent)
                                      : AtenArgument("exponent", truncated(*exponent));
    return {c.aten("aten.pow.Tensor_Scalar", {{"self", base}, power}).cast(type).id};
  }
  return {c.aten("aten.pow.Tensor_Tensor", {{"self", base}, {"exponent", y.cast(base.dtype())}})
              .cast(type)
              .id};
}

// Any number of tensors is combined from the left.
template <Expr (*f)(OnnxCall&, Expr, Expr)>
Values folded(OnnxCall& c) {
  Expr result = c.tensor(0);
  for (size_t i = 1; i < c.input_count() && c.ok(); ++i) result = f(c, result, c.tensor(i));
  return {result.id};
}
Expr greater_of(OnnxCall& c, Expr x, Expr y) {
  return c.aten("aten.maximum.default", {{"self", x}, {"other", y}});
}
Expr lesser_of(OnnxCall& c, Expr x, Expr y) {
  return c.aten("aten.minimum.default", {{"self", x}, {"other", y}});
}
Expr sum_of(OnnxCall& c, Expr x, Expr y) {
  return c.aten("aten.add.Tensor", {{"self", x}, {"other", y}});
}
Values mean_of_operands(OnnxCall& c) {
  const Values sum = folded<sum_of>(c);
  if (!c.ok()) return {};
  return {(Expr{&c.b, sum[0]} / static_cast<double>(c.input_count())).id};
}

struct AtenName {
  std::string_view op, target;
};
constexpr AtenName kUnary[] = {
    {"Abs", "aten.abs.default"},
    {"Neg", "aten.neg.default"},
    {"Floor", "aten.floor.default"},
    {"Ceil", "aten.ceil.default"},
    {"Round", "aten.round.default"},
    {"Sqrt", "aten.sqrt.default"},
    {"Exp", "aten.exp.default"},
    {"Log", "aten.log.default"},
    {"Sin", "aten.sin.default"},
    {"Cos", "aten.cos.default"},
    {"Tan", "aten.tan.default"},
    {"Tanh", "aten.tanh.default"},
    {"Erf", "aten.erf.default"},
    {"Reciprocal", "aten.reciprocal.default"},
    {"Sign", "aten.sign.default"},
    {"Not", "aten.logical_not.default"},
    {"Acos", "aten.acos.default"},
    {"Asin", "aten.asin.default"},
    {"Atan", "aten.atan.default"},
    {"Sinh", "aten.sinh.default"},
    {"Cosh", "aten.cosh.default"},
    {"Asinh", "aten.asinh.default"},
    {"Acosh", "aten.acosh.default"},
    {"Atanh", "aten.atanh.default"},
    {"Sigmoid", "aten.sigmoid.default"},
    {"Relu", "aten.relu.default"},
    {"HardSwish", "aten.hardswish.default"},
    {"Mish", "aten.mish.default"},
    {"IsNaN", "aten.isnan.default"},
    {"BitwiseNot", "aten.bitwise_not.default"},
};
constexpr AtenName kBinary[] = {
    {"Equal", "aten.eq.Tensor"},
    {"Less", "aten.lt.Tensor"},
    {"LessOrEqual", "aten.le.Tensor"},
    {"Greater", "aten.gt.Tensor"},
    {"GreaterOrEqual", "aten.ge.Tensor"},
    {"And", "aten.logical_and.default"},
    {"Or", "aten.logical_or.default"},
    {"Xor", "aten.logical_xor.default"},
    {"BitwiseAnd", "aten.bitwise_and.Tensor"},
    {"BitwiseOr", "aten.bitwise_or.Tensor"},
    {"BitwiseXor", "aten.bitwise_xor.Tensor"},
};

// Ops that are ATen's under another name.
Values same_of_one(OnnxCall& c) {
  const auto* found = std::find_if(std::begin(kUnary), std::end(kUnary),
                                   [&](const AtenName& each) { return each.op == c.op(); });
  return {c.aten(found->target, {{"self", c.tensor(0)}}).id};
}
Values same_of_two(OnnxCall& c) {
  const auto* found = std::find_if(std::begin(kBinary), std::end(kBinary),
                                   [&](const AtenName& each) { return each.op == c.op(); });
  return binary(c, found->target);
}

Values is_infinite(OnnxCall& c) {
  const bool positive = c.flag("detect_positive", true), negative = c.flag("detect_negative", true);
  const Expr x = c.tensor(0);
  if (!positive && !negative) return {c.b.broadcast(c.b.constant_int(DType::kBool, 0), x.shape())};
  return {c.aten(positive && negative ? "aten.isinf.default"
                 : positive           ? "aten.isposinf.default"
                                      : "aten.isneginf.default",
                 {{"self", x}})
              .id};
}

Values bit_shift(OnnxCall& c) {
  const std::string_view direction = c.text("direction", "");
  if (direction != "LEFT" && direction != "RIGHT")
    return {c.invalid("attribute 'direction' is LEFT or RIGHT")};
  return binary(c, direction == "LEFT" ? "aten.bitwise_left_shift.Tensor"
                                       : "aten.bitwise_right_shift.Tensor");
}

Values where(OnnxCall& c) {
  return {c.aten("aten.where.self",
                 {{"condition", c.tensor(0)}, {"self", c.tensor(1)}, {"other", c.tensor(2)}})
              .id};
}

// A bound that is a number is one to ATen too.
AtenArgument bound(OnnxCall& c, std::string_view name, size_t i, DType type) {
  const std::optional<double> number = c.number(i);
  if (!number) return {name, c.optional_tensor(i)};
  if (is_float(type)) return {name, *number};
  return {name, truncated(*number)};
}

Values clip(OnnxCall& c) {
  const Expr x = c.tensor(0);
  if (!c.ok() || (!c.has(1) && !c.has(2))) return {x.id};
  const bool numbers = (!c.has(1) || c.number(1)) && (!c.has(2) || c.number(2));
  if (numbers)
    return {c.aten("aten.clamp.default",
                   {{"self", x}, bound(c, "min", 1, x.dtype()), bound(c, "max", 2, x.dtype())})
                .id};
  return {c.aten("aten.clamp.Tensor",
                 {{"self", x}, {"min", c.optional_tensor(1)}, {"max", c.optional_tensor(2)}})
              .id};
}

Values cast(OnnxCall& c) {
  c.required_integer("to");
  const Expr x = c.tensor(0);
  return {x.cast(c.dtype("to", x.dtype())).id};
}
Values cast_like(OnnxCall& c) {
  return {c.tensor(0).cast(c.tensor(1).dtype()).id};
}

Values identity(OnnxCall& c) {
  return {c.tensor(0).id};
}
// In inference, which is all that Kiln reads, it changes nothing.
Values dropout(OnnxCall& c) {
  const Expr x = c.tensor(0);
  if (c.has(2) && c.number(2) != 0)
    return {c.unsupported("dropout in training mode is not covered; export with model.eval()")};
  return {x.id, c.b.broadcast(c.b.constant_int(DType::kBool, 1), x.shape())};
}

constexpr OnnxLowering kNamed[] = {
    {"Add", add},
    {"Sub", subtract},
    {"Mul", multiply},
    {"Div", divide},
    {"Mod", modulo},
    {"Pow", power},
    {"Max", folded<greater_of>},
    {"Min", folded<lesser_of>},
    {"Sum", folded<sum_of>},
    {"Mean", mean_of_operands},
    {"Where", where},
    {"Clip", clip},
    {"Cast", cast},
    {"CastLike", cast_like},
    {"IsInf", is_infinite},
    {"BitShift", bit_shift},
    {"Identity", identity},
    {"Dropout", dropout},
};

}  // namespace

std::span<const OnnxLowering> onnx_arithmetic_lowerings() {
  static const auto kAll = [] {
    std::vector<OnnxLowering> all(std::begin(kNamed), std::end(kNamed));
    for (const AtenName& each : kUnary) all.push_back({each.op, same_of_one});
    for (const AtenName& each : kBinary) all.push_back({each.op, same_of_two});
    return all;
  }();
  return kAll;
}

}  // namespace kiln
