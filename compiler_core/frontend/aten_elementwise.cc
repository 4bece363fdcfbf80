// Elementwise functions beyond arithmetic: trigonometry, logarithms, tests for special values,
// blends, shifts.
#include <cmath>
#include <limits>
#include <numbers>

#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

// A formula on one value in its compute type.
using Formula = Expr (*)(Expr);
template <Formula f>
Values of_one(Call& c) {
  return in_compute_type(c, f);
}
using Formula2 = Expr (*)(Expr, Expr);
template <Formula2 f>
Values of_two(Call& c) {
  return in_compute_type_of_two(c, f);
}

Expr atan2(Expr y, Expr x) {
  return apply(Op::kAtan2, y, x);
}
Expr acos(Expr x) {
  return atan2(sqrt((1 - x) * (x + 1)), x);
}
Expr asin(Expr x) {
  return atan2(x, sqrt((1 - x) * (x + 1)));
}
Expr atan(Expr x) {
  return atan2(x, x.like(1));
}
// e^|x| / 2 as the square of a root, which does not overflow before the result does.
Expr half_exp(Expr x) {
  const Expr root = exp(abs(x) * 0.5);
  return root * 0.5 * root;
}
Expr sinh(Expr x) {
  // Near 0 by way of expm1, which keeps small differences.
  const Expr t = expm1(abs(x));
  const Expr near = (t + t / (t + 1)) * 0.5;
  const Expr size = choose(abs(x) < 1, near, half_exp(x) - 0.25 / half_exp(x));
  return choose(x < 0, -size, size);
}
Expr cosh(Expr x) {
  return half_exp(x) + 0.25 / half_exp(x);
}
Expr asinh(Expr x) {
  const Expr a = abs(x), square = a * a;
  const Expr size =
      choose(a > 1e8, log(a) + std::numbers::ln2, log1p(a + square / (sqrt(square + 1) + 1)));
  return choose(x < 0, -size, size);
}
Expr acosh(Expr x) {
  const Expr t = x - 1;
  return choose(x > 1e8, log(x) + std::numbers::ln2, log1p(t + sqrt(t * 2 + t * t)));
}
Expr atanh(Expr x) {
  return log1p(x * 2 / (1 - x)) * 0.5;
}
Expr log2(Expr x) {
  return log(x) * std::numbers::log2e;
}
Expr log10(Expr x) {
  return log(x) * std::numbers::log10e;
}
Expr exp2(Expr x) {
  return apply(Op::kPow, x.like(2), x);
}
Expr erf(Expr x) {
  return apply(Op::kErf, x);
}
// Uses the Chebyshev fit of Numerical Recipes (erfcc, 1.2e-7 relative) from |x| = 0.5 on, where 1 -
// erf(x) loses its digits.
Expr erfc(Expr x) {
  if (x.dtype() == DType::kF64) return 1 - erf(x);
  const Expr z = abs(x), t = 1 / (z * 0.5 + 1);
  Expr sum = t.like(0.17087277);
  for (const double coefficient : {-0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806,
                                   0.09678418, 0.37409196, 1.00002368, -1.26551223})
    sum = sum * t + coefficient;
  const Expr tail = t * exp(sum - z * z);
  return choose(z < 0.5, 1 - erf(x), choose(x < 0, 2 - tail, tail));
}
Expr square(Expr x) {
  return x * x;
}
Expr sinc(Expr x) {
  const Expr y = x * std::numbers::pi;
  return choose(x == 0, 1, apply(Op::kSin, y) / y);
}
Expr to_radians(Expr x) {
  return x * (std::numbers::pi / 180);
}
Expr to_degrees(Expr x) {
  return x * (180 / std::numbers::pi);
}
Expr hypot(Expr x, Expr y) {
  const Expr a = abs(x), b = abs(y), large = max(a, b), ratio = min(a, b) / large;
  return choose(large == 0, large,
                choose(large == kInfinity, large, large * sqrt(ratio * ratio + 1)));
}
Expr log_add_exp(Expr x, Expr y) {
  // Equal infinities would subtract to NaN.
  const Expr large = max(x, y), distance = min(x, y) - large;
  return choose(abs(large) == kInfinity, large, large + log1p(exp(distance)));
}
Expr log_add_exp2(Expr x, Expr y) {
  const Expr large = max(x, y), distance = min(x, y) - large;
  return choose(abs(large) == kInfinity, large,
                large + log1p(exp2(distance)) * std::numbers::log2e);
}
Expr x_log_y(Expr x, Expr y) {
  return choose((x == 0) & (y == y), 0, x * log(y));
}
Expr x_log1p_y(Expr x, Expr y) {
  return choose((x == 0) & (y == y), 0, x * log1p(y));
}
// Which of the two zeros a zero is shows in its reciprocal.
Expr has_sign(Expr x) {
  return choose(x == 0, apply(Op::kReciprocal, x) < 0, x < 0);
}
Expr with_sign_of(Expr x, Expr y) {
  return choose(has_sign(y), -abs(x), abs(x));
}

Values logit(Call& c) {
  const bool clamps = c.has("eps");
  const double eps = clamps ? c.real("eps") : 0;
  return in_compute_type(c, [&](Expr x) {
    if (clamps) x = min(max(x, eps), 1 - eps);
    return log(x / (1 - x));
  });
}

// Applies the test `f` to floats and gives `of_integers` for integers, which are always finite.
template <Formula f>
Values test(Call& c, bool of_integers) {
  const Expr x = tensor(c, "self");
  if (!c.ok()) return {};
  if (is_float(x.dtype())) return {f(x).id};
  return {c.b.broadcast(c.b.constant_int(DType::kBool, of_integers ? 1 : 0), x.shape())};
}
Expr is_nan(Expr x) {
  return x != x;
}
Expr is_infinite(Expr x) {
  return abs(x) == kInfinity;
}
Expr is_finite(Expr x) {
  return abs(x) < kInfinity;
}
Expr is_plus_infinity(Expr x) {
  return x == kInfinity;
}
Expr is_minus_infinity(Expr x) {
  return x == -kInfinity;
}
Values isnan(Call& c) {
  return test<is_nan>(c, false);
}
Values isinf(Call& c) {
  return test<is_infinite>(c, false);
}
Values isfinite(Call& c) {
  return test<is_finite>(c, true);
}
Values isposinf(Call& c) {
  return test<is_plus_infinity>(c, false);
}
Values isneginf(Call& c) {
  return test<is_minus_infinity>(c, false);
}
Values signbit(Call& c) {
  const Expr x = tensor(c, "self");
  if (!c.ok()) return {};
  if (x.dtype() == DType::kBool)
    return {c.b.broadcast(c.b.constant_int(DType::kBool, 0), x.shape())};
  return {(is_float(x.dtype()) ? has_sign(x) : x < 0).id};
}

double greatest_of(DType type) {
  switch (type) {
    case DType::kF64:
      return std::numeric_limits<double>::max();
    case DType::kF16:
      return 65504;
    case DType::kBF16:
      return std::ldexp(255.0 / 128, 127);
    default:
      return std::numeric_limits<float>::max();
  }
}

Values nan_to_num(Call& c) {
  const Expr x = tensor(c, "self");
  const double greatest = greatest_of(x.dtype());
  const double nan = c.real("nan", 0), high = c.real("posinf", greatest),
               low = c.real("neginf", -greatest);
  if (!c.ok() || !is_float(x.dtype())) return {x.id};
  const Expr finite = choose(x == -kInfinity, low, choose(x == kInfinity, high, x));
  return {choose(x != x, nan, finite).id};
}

Values frac(Call& c) {
  return in_compute_type(c, [](Expr x) { return x - apply(Op::kTrunc, x); });
}

// Half to even at `decimals` places, in two steps as ATen.
Values round_to(Call& c) {
  const int64_t decimals = c.integer("decimals", 0);
  const double scale = std::pow(10.0, static_cast<double>(decimals < 0 ? -decimals : decimals));
  return in_compute_type(c, [&](Expr x) {
    if (decimals < 0) return apply(Op::kRound, x / scale) * scale;
    return apply(Op::kRound, x * scale) / scale;
  });
}

// A tensor, or a number as a scalar tensor.
Expr operand_of(Call& c, std::string_view name, DType type) {
  const Operand given = c.operand(name);
  return {&c.b, given.number ? scalar(c.b, type, *given.number) : c.b.cast(given.id, type)};
}

// fmax and fmin: the other side of a NaN.
template <bool greatest>
Values extremum_skipping_nan(Call& c) {
  const Operand x = c.operand("self"), y = c.operand("other");
  if (!c.ok()) return {};
  const Operand both[] = {x, y};
  const DType type = result_type(c.b, both);
  if (type == DType::kBool) return {c.unsupported("fmax and fmin of bool are not covered")};
  const Expr a = operand_of(c, "self", type), b = operand_of(c, "other", type);
  const Expr chosen = greatest ? max(a, b) : min(a, b);
  if (!is_float(type)) return {chosen.id};
  return {choose(a != a, b, choose(b != b, a, chosen)).id};
}

// start + weight * (end - start), from the end that is nearer, as ATen.
Values lerp(Call& c) {
  const Expr start = tensor(c, "self"), end = tensor(c, "end");
  if (!c.ok()) return {};
  const DType type = start.dtype();
  const Expr a = wide(start), b = wide(end);
  const Expr weight = operand_of(c, "weight", a.dtype()), span = b - a;
  const Expr result = choose(abs(weight) < 0.5, a + weight * span, b - span * (1 - weight));
  return {result.cast(type).id};
}

// self + value * (tensor1 op tensor2)
template <Op op>
Values add_combined(Call& c) {
  const Expr x = tensor(c, "self"), first = tensor(c, "tensor1"), second = tensor(c, "tensor2");
  const double value = c.real("value", 1);
  if (!c.ok()) return {};
  const Operand all[] = {{x.id, {}}, {first.id, {}}, {second.id, {}}};
  const DType type = result_type(c.b, all), compute = compute_type(type);
  if (op == Op::kDiv && !is_float(type))
    return {c.invalid("addcdiv of integers is no longer a division; use true_divide")};
  const Expr a = first.cast(compute), b = second.cast(compute);
  // ATen scales the first factor.
  const Expr scaled = value == 1 ? a : a * value;
  return {(x.cast(compute) + apply(op, scaled, b)).cast(type).id};
}

// 2^n wraps to 0 once n reaches the width; so does the product.
template <bool left>
Values shift(Call& c) {
  const Operand x = c.operand("self"), y = c.operand("other");
  if (!c.ok()) return {};
  const Operand both[] = {x, y};
  const DType type = result_type(c.b, both);
  if (!is_integer(type)) return {c.unsupported("shifts of anything but integers are not covered")};
  // Bytes without a sign: a quotient in their own type.
  if (!left && type == DType::kU8 && y.number && y.number->value >= 0 && y.number->value < 8)
    return {(operand_of(c, "self", type) / std::exp2(y.number->value)).id};
  const DType compute = left ? type : DType::kI64;
  const Expr a = operand_of(c, "self", compute), n = operand_of(c, "other", compute);
  if (left) {
    const double width = static_cast<double>(size_of(type)) * 8;
    const Expr power = apply(Op::kPow, n.like(2), max(min(n, width - 1), 0));
    return {choose((n < 0) | (n >= width), 0, a * power).id};
  }
  // An arithmetic shift: the quotient rounded down.
  const Expr power = apply(Op::kPow, n.like(2), max(min(n, 62), 0));
  const Expr quotient = a / power, rest = a - quotient * power;
  return {choose(rest < 0, quotient - 1, quotient).cast(type).id};
}

Values heaviside(Call& c) {
  const Expr x = tensor(c, "self"), at_zero = tensor(c, "values");
  if (!c.ok()) return {};
  const Expr step = choose(x > 0, x.like(1), x.like(0));
  const Expr result = choose(x == 0, at_zero, step);
  return {(is_float(x.dtype()) ? choose(x != x, x.like(0), result) : result).id};
}

Values float_power(Call& c) {
  const Operand x = c.operand("self"), y = c.operand("exponent");
  if (!c.ok()) return {};
  return {
      apply(Op::kPow, operand_of(c, "self", DType::kF64), operand_of(c, "exponent", DType::kF64))
          .id};
}

// |x - y| <= atol + rtol * |y|; equal infinities are close.
Values isclose(Call& c) {
  const double rtol = c.real("rtol", 1e-5), atol = c.real("atol", 1e-8);
  const bool equal_nan = c.flag("equal_nan", false);
  const Expr x = tensor(c, "self"), y = tensor(c, "other");
  if (!c.ok()) return {};
  const Expr a = wide(x), b = wide(y);
  Expr close = (a == b) | ((abs(a - b) <= abs(b) * rtol + atol) & (abs(a - b) < kInfinity));
  if (equal_nan) close = close | ((a != a) & (b != b));
  return {close.id};
}

constexpr Lowering kElementwiseLowerings[] = {
    {"aten.acos.default", of_one<acos>},
    {"aten.arccos.default", of_one<acos>},
    {"aten.asin.default", of_one<asin>},
    {"aten.arcsin.default", of_one<asin>},
    {"aten.atan.default", of_one<atan>},
    {"aten.arctan.default", of_one<atan>},
    {"aten.atan2.default", of_two<atan2>},
    {"aten.arctan2.default", of_two<atan2>},
    {"aten.sinh.default", of_one<sinh>},
    {"aten.cosh.default", of_one<cosh>},
    {"aten.asinh.default", of_one<asinh>},
    {"aten.arcsinh.default", of_one<asinh>},
    {"aten.acosh.default", of_one<acosh>},
    {"aten.arccosh.default", of_one<acosh>},
    {"aten.atanh.default", of_one<atanh>},
    {"aten.arctanh.default", of_one<atanh>},
    {"aten.log2.default", of_one<log2>},
    {"aten.log10.default", of_one<log10>},
    {"aten.exp2.default", of_one<exp2>},
    {"aten.special_exp2.default", of_one<exp2>},
    {"aten.erfc.default", of_one<erfc>},
    {"aten.special_erf.default", of_one<erf>},
    {"aten.special_erfc.default", of_one<erfc>},
    {"aten.special_expm1.default", of_one<expm1>},
    {"aten.special_log1p.default", of_one<log1p>},
    {"aten.square.default", of_one<square>},
    {"aten.sinc.default", of_one<sinc>},
    {"aten.special_sinc.default", of_one<sinc>},
    {"aten.deg2rad.default", of_one<to_radians>},
    {"aten.rad2deg.default", of_one<to_degrees>},
    {"aten.special_expit.default", of_one<sigmoid>},
    {"aten.hypot.default", of_two<hypot>},
    {"aten.logaddexp.default", of_two<log_add_exp>},
    {"aten.logaddexp2.default", of_two<log_add_exp2>},
    {"aten.xlogy.Tensor", of_two<x_log_y>},
    {"aten.xlogy.Scalar_Other", of_two<x_log_y>},
    {"aten.xlogy.Scalar_Self", of_two<x_log_y>},
    {"aten.special_xlogy.default", of_two<x_log_y>},
    {"aten.special_xlog1py.default", of_two<x_log1p_y>},
    {"aten.copysign.Tensor", of_two<with_sign_of>},
    {"aten.copysign.Scalar", of_two<with_sign_of>},
    {"aten.logit.default", logit},
    {"aten.special_logit.default", logit},
    {"aten.isnan.default", isnan},
    {"aten.isinf.default", isinf},
    {"aten.isfinite.default", isfinite},
    {"aten.isposinf.default", isposinf},
    {"aten.isneginf.default", isneginf},
    {"aten.signbit.default", signbit},
    {"aten.nan_to_num.default", nan_to_num},
    {"aten.frac.default", frac},
    {"aten.round.decimals", round_to},
    {"aten.fmax.default", extremum_skipping_nan<true>},
    {"aten.fmin.default", extremum_skipping_nan<false>},
    {"aten.lerp.Scalar", lerp},
    {"aten.lerp.Tensor", lerp},
    {"aten.addcmul.default", add_combined<Op::kMul>},
    {"aten.addcdiv.default", add_combined<Op::kDiv>},
    {"aten.bitwise_left_shift.Tensor", shift<true>},
    {"aten.bitwise_left_shift.Tensor_Scalar", shift<true>},
    {"aten.bitwise_left_shift.Scalar_Tensor", shift<true>},
    {"aten.bitwise_right_shift.Tensor", shift<false>},
    {"aten.bitwise_right_shift.Tensor_Scalar", shift<false>},
    {"aten.bitwise_right_shift.Scalar_Tensor", shift<false>},
    {"aten.__lshift__.Scalar", shift<true>},
    {"aten.__lshift__.Tensor", shift<true>},
    {"aten.__rshift__.Scalar", shift<false>},
    {"aten.__rshift__.Tensor", shift<false>},
    {"aten.heaviside.default", heaviside},
    {"aten.float_power.Tensor_Tensor", float_power},
    {"aten.float_power.Tensor_Scalar", float_power},
    {"aten.float_power.Scalar", float_power},
    {"aten.isclose.default", isclose},
};

}  // namespace

std::span<const Lowering> elementwise_lowerings() {
  return kElementwiseLowerings;
}

}  // namespace kiln
