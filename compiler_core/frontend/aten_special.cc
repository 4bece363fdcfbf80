// Special functions. They are rare, and their formulas cancel: computed in f64 whatever the dtype,
// and rounded once. Numbers of formulas are those of Abramowitz & Stegun, 1964.
#include <cmath>
#include <numbers>

#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

constexpr double kPi = std::numbers::pi;

using Formula = Expr (*)(Expr);
template <Formula f>
Values special(Call& c) {
  const Expr x = tensor(c, "self");
  if (!c.ok()) return {};
  return {f(x.cast(DType::kF64)).cast(to_float_type(x.dtype())).id};
}

Expr sin(Expr x) {
  return apply(Op::kSin, x);
}
Expr is_pole(Expr x) {
  return (x <= 0) & (floor(x) == x);
}
// c[0] + c[1] x + c[2] x^2 + ...
template <size_t n>
Expr polynomial(Expr x, const double (&c)[n]) {
  Expr sum = x.like(c[n - 1]);
  for (size_t i = n - 1; i-- > 0;) sum = sum * x + c[i];
  return sum;
}

// Lanczos' approximation with g = 7 and nine terms; 6.1.17 reflects what is below 1/2.
Expr lgamma(Expr x) {
  constexpr double kTerms[] = {676.5203681218851,     -1259.1392167224028,  771.32342877765313,
                               -176.61502916214059,   12.507343278686905,   -0.13857109526572012,
                               9.9843695780195716e-6, 1.5056327351493116e-7};
  const Expr low = x < 0.5, y = choose(low, 1 - x, x) - 1;
  Expr sum = y.like(0.99999999999980993);
  for (size_t i = 0; i < std::size(kTerms); ++i)
    sum = sum + kTerms[i] / (y + static_cast<double>(i + 1));
  const Expr t = y + 7.5;
  const Expr value = (y + 0.5) * log(t) - t + log(sum) + 0.5 * std::log(2 * kPi);
  // The sine of the distance to the next integer, which is exact.
  const Expr distance = x - apply(Op::kRound, x);
  const Expr result = choose(low, log(kPi / abs(sin(distance * kPi))) - value, value);
  return choose(is_pole(x) | (abs(x) == kInfinity), kInfinity, result);
}

constexpr int kShift = 8;  // 6.3.6: what is less goes up by so much before the series

// 6.3.18 from there on, 6.3.7 below 1/2.
Expr digamma(Expr x) {
  constexpr double kSeries[] = {0, -1.0 / 12, 1.0 / 120, -1.0 / 252, 1.0 / 240, -1.0 / 132};
  const Expr low = x < 0.5, y = choose(low, 1 - x, x), z = y + kShift;
  Expr value = log(z) - 0.5 / z + polynomial(1 / (z * z), kSeries);
  for (int i = 0; i < kShift; ++i) value = value - 1 / (y + static_cast<double>(i));
  const Expr distance = x - apply(Op::kRound, x);
  const Expr result = choose(low, value - kPi / apply(Op::kTan, distance * kPi), value);
  const Expr at_pole = choose(x == 0, x.like(-kInfinity), x.like(std::nan("")));
  return choose(x == kInfinity, kInfinity, choose(is_pole(x), at_pole, result));
}

// 6.4.12, and 6.4.7 below 1/2.
Expr trigamma(Expr x) {
  constexpr double kSeries[] = {1, 1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66};
  const Expr low = x < 0.5, y = choose(low, 1 - x, x), z = y + kShift;
  Expr value = polynomial(1 / (z * z), kSeries) / z + 0.5 / (z * z);
  for (int i = 0; i < kShift; ++i) {
    const Expr at = y + static_cast<double>(i);
    value = value + 1 / (at * at);
  }
  const Expr slope = kPi / sin((x - apply(Op::kRound, x)) * kPi);
  return choose(is_pole(x), kInfinity, choose(low, slope * slope - value, value));
}
Values polygamma(Call& c) {
  const int64_t n = c.integer("n");
  if (n == 0) return special<digamma>(c);
  if (n == 1) return special<trigamma>(c);
  return {c.unsupported("only the first two orders of polygamma are covered")};
}

// e^-|x| I_order(|x|), for order 0 or 1. Up to 30 the mean of 9.6.16 over 64 points, whose error
// falls with I_64; above it 9.7.1.
template <int order>
Expr scaled_bessel(Expr x) {
  constexpr int kPoints = 64;
  constexpr double kFar = 30;
  const Expr a = abs(x), near = min(a, kFar);
  Expr mean = a.like(0);
  for (int k = 0; k <= kPoints / 2; ++k) {
    const double cosine = std::cos(2 * kPi * k / kPoints);
    const double weight = (k == 0 || k == kPoints / 2 ? 1.0 : 2.0) / kPoints;
    mean = mean + exp(near * (cosine - 1)) * (order == 0 ? weight : weight * cosine);
  }
  const Expr y = max(a, kFar);
  Expr term = y.like(1), sum = term;
  for (int k = 1; k <= 10; ++k) {
    const double odd = 2 * k - 1;
    term = term * ((odd * odd - 4 * order * order) / (8 * k)) / y;
    sum = sum + term;
  }
  const Expr value = choose(a <= kFar, mean, sum / sqrt(y * (2 * kPi)));
  const Expr known = choose(x != x, x, value);
  return order == 0 ? known : choose(x < 0, -known, known);
}
Expr i0(Expr x) {
  return choose(abs(x) == kInfinity, kInfinity, scaled_bessel<0>(x) * exp(abs(x)));
}
Expr i1(Expr x) {
  return choose(abs(x) == kInfinity, x, scaled_bessel<1>(x) * exp(abs(x)));
}

// M. Giles, "Approximating the erfinv function" (2010), and two steps of Newton's method.
Expr erfinv(Expr x) {
  constexpr double kMiddle[] = {1.50140941,     0.246640727,   -0.00417768164,
                                -0.00125372503, 0.00021858087, -4.39150654e-6,
                                -3.5233877e-6,  3.43273939e-7, 2.81022636e-8};
  constexpr double kTail[] = {2.83297682,    1.00167406,     0.00943887047,
                              -0.0076224613, 0.00573950773,  -0.00367342844,
                              0.00134934322, 0.000100950558, -0.000200214257};
  const Expr w = -log((1 - x) * (x + 1));
  Expr y = x * choose(w < 5, polynomial(w - 2.5, kMiddle), polynomial(sqrt(w) - 3, kTail));
  for (int step = 0; step < 2; ++step)
    y = y - (apply(Op::kErf, y) - x) * exp(y * y) * (0.5 * std::sqrt(kPi));
  return choose(abs(x) == 1, x * kInfinity, y);
}
Expr ndtr(Expr x) {
  return (apply(Op::kErf, x * (1 / std::numbers::sqrt2)) + 1) * 0.5;
}
Expr ndtri(Expr x) {
  return erfinv(x * 2 - 1) * std::numbers::sqrt2;
}
Expr entr(Expr x) {
  const Expr inside = -(x * log(x));
  return choose(x == 0, 0, choose(x < 0, -kInfinity, inside));
}

constexpr Lowering kSpecialLowerings[] = {
    {"aten.lgamma.default", special<lgamma>},
    {"aten.special_gammaln.default", special<lgamma>},
    {"aten.digamma.default", special<digamma>},
    {"aten.special_digamma.default", special<digamma>},
    {"aten.special_psi.default", special<digamma>},
    {"aten.polygamma.default", polygamma},
    {"aten.special_polygamma.default", polygamma},
    {"aten.i0.default", special<i0>},
    {"aten.special_i0.default", special<i0>},
    {"aten.special_i0e.default", special<scaled_bessel<0>>},
    {"aten.special_i1.default", special<i1>},
    {"aten.special_i1e.default", special<scaled_bessel<1>>},
    {"aten.erfinv.default", special<erfinv>},
    {"aten.special_erfinv.default", special<erfinv>},
    {"aten.special_ndtr.default", special<ndtr>},
    {"aten.special_ndtri.default", special<ndtri>},
    {"aten.special_entr.default", special<entr>},
};

}  // namespace

std::span<const Lowering> special_lowerings() {
  return kSpecialLowerings;
}

}  // namespace kiln
