// Elementary functions, from CUDA's own device library: a few units in the last place over the
// whole range (CUDA C++ Programming Guide, "Mathematical functions"), with C99 Annex F's special
// values. Integers wrap; integer division by zero gives 0 and never traps.
namespace {

// NaN wins on either side.
KILN_INLINE float greatest(float a, float b) { return max_or_nan(a, b); }
KILN_INLINE float least(float a, float b) { return min_or_nan(a, b); }
KILN_INLINE double greatest(double a, double b) { return a != a || a > b ? a : b; }
KILN_INLINE double least(double a, double b) { return a != a || a < b ? a : b; }
KILN_INLINE int greatest(int a, int b) { return a > b ? a : b; }
KILN_INLINE int least(int a, int b) { return a < b ? a : b; }
KILN_INLINE int64_t greatest(int64_t a, int64_t b) { return a > b ? a : b; }
KILN_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// 1 - 2 / (exp(2|x|) + 1), and near zero, where that cancels, a polynomial; without branches, for
// what activations spend their time on. Three units in the last place.
KILN_INLINE float hyperbolic_tangent(float x) {
  const float e = quick_exp2(fabsf(x) * 0x1.715476p1f);
  const float far = fmaf(-2.0f, quick_reciprocal(e + 1.0f), 1.0f), s = x * x;
  float p = fmaf(-0.00626911973f, s, 0.0211109591f);
  p = fmaf(p, s, -0.0538739489f);
  p = fmaf(p, s, 0.133329154f);
  p = fmaf(p, s, -0.333333303f);
  const float near = fmaf(p * s, x, x);
  return copysignf(fabsf(x) < 0.6f ? near : far, x);
}

KILN_LANEWISE1(op_neg, float, -a)
KILN_LANEWISE1(op_abs, float, fabsf(a))
KILN_LANEWISE1(op_sign, float, a != a ? a : a > 0 ? float(1) : a < 0 ? float(-1) : float(0))
KILN_LANEWISE1(op_floor, float, floorf(a))
KILN_LANEWISE1(op_ceil, float, ceilf(a))
KILN_LANEWISE1(op_trunc, float, truncf(a))
KILN_LANEWISE1(op_round, float, rintf(a))
KILN_LANEWISE1(op_sqrt, float, sqrtf(a))
KILN_LANEWISE1(op_rsqrt, float, rsqrtf(a))
KILN_LANEWISE1(op_reciprocal, float, float(1) / a)
KILN_LANEWISE1(op_exp, float, expf(a))
KILN_LANEWISE1(op_expm1, float, expm1f(a))
KILN_LANEWISE1(op_log, float, logf(a))
KILN_LANEWISE1(op_log1p, float, log1pf(a))
KILN_LANEWISE1(op_tanh, float, hyperbolic_tangent(a))
KILN_LANEWISE1(op_erf, float, erff(a))
KILN_LANEWISE2(op_div, float, a / b)
KILN_LANEWISE2(op_rem, float, fmodf(a, b))
KILN_LANEWISE2(op_pow, float, powf(a, b))
KILN_LANEWISE2(op_atan2, float, atan2f(a, b))
KILN_LANEWISE2(op_max, float, greatest(a, b))
KILN_LANEWISE2(op_min, float, least(a, b))
KILN_LANEWISE1(op_neg, double, -a)
KILN_LANEWISE1(op_abs, double, fabs(a))
KILN_LANEWISE1(op_sign, double, a != a ? a : a > 0 ? double(1) : a < 0 ? double(-1) : double(0))
KILN_LANEWISE1(op_floor, double, floor(a))
KILN_LANEWISE1(op_ceil, double, ceil(a))
KILN_LANEWISE1(op_trunc, double, trunc(a))
KILN_LANEWISE1(op_round, double, rint(a))
KILN_LANEWISE1(op_sqrt, double, sqrt(a))
KILN_LANEWISE1(op_rsqrt, double, rsqrt(a))
KILN_LANEWISE1(op_reciprocal, double, double(1) / a)
KILN_LANEWISE1(op_exp, double, exp(a))
KILN_LANEWISE1(op_expm1, double, expm1(a))
KILN_LANEWISE1(op_log, double, log(a))
KILN_LANEWISE1(op_log1p, double, log1p(a))
KILN_LANEWISE1(op_tanh, double, tanh(a))
KILN_LANEWISE1(op_erf, double, erf(a))
KILN_LANEWISE2(op_div, double, a / b)
KILN_LANEWISE2(op_rem, double, fmod(a, b))
KILN_LANEWISE2(op_pow, double, pow(a, b))
KILN_LANEWISE2(op_atan2, double, atan2(a, b))
KILN_LANEWISE2(op_max, double, greatest(a, b))
KILN_LANEWISE2(op_min, double, least(a, b))

// For what ends in halves: some units in the last place of f32, where a half has 2^13 of them. What
// is not normal becomes zero.
KILN_LANEWISE1(op_exp_roughly, float, quick_exp2(a * 0x1.715476p0f))
KILN_LANEWISE1(op_reciprocal_roughly, float, quick_reciprocal(a))
KILN_LANEWISE2(op_div_roughly, float, a * quick_reciprocal(b))
KILN_LANEWISE1(op_tanh_roughly, float,
               fmaf(-2.0f, quick_reciprocal(quick_exp2(a * 0x1.715476p1f) + 1.0f), 1.0f))
// 1 - p(t) exp(-x^2), t = 1 / (1 + 0.3275911 x): Abramowitz and Stegun, 7.1.26, to 1.5e-7; and near
// zero, where that cancels, the power series.
KILN_INLINE float rough_error_function(float x) {
  const float magnitude = fabsf(x), s = x * x;
  const float t = quick_reciprocal(fmaf(0.3275911f, magnitude, 1.0f));
  float p = fmaf(1.061405429f, t, -1.453152027f);
  p = fmaf(p, t, 1.421413741f);
  p = fmaf(p, t, -0.284496736f);
  p = fmaf(p, t, 0.254829592f);
  const float far = fmaf(-p * t, quick_exp2(s * -0x1.715476p0f), 1.0f);
  const float near = x * fmaf(fmaf(fmaf(-0.0268661706f, s, 0.112837917f), s, -0.376126389f), s,
                              1.12837917f);
  return magnitude < 0.25f ? near : copysignf(far, x);
}
KILN_LANEWISE1(op_erf_roughly, float, rough_error_function(a))
// x Phi(x) = max(x, 0) - |x| Phi(-|x|), where log2 Phi(-t) is a polynomial within 2^-12.6 of Phi up to
// t = 4.3, in which f16 has normal results, and 2^-9 up to 5.5; from there on it falls as Phi does.
// The bound is for +inf, whose product with zero is no number; -inf gives NaN, as 0.5 x (1 + erf) does.
KILN_INLINE float rough_gelu(float x) {
  const float t = fabsf(fminf(x, 16.0f));
  float q = fmaf(-0x1.17443cp-12f, t, 0x1.58e95cp-8f);
  q = fmaf(q, t, -0x1.7a8104p-5f);
  q = fmaf(q, t, -0x1.de4632p-2f);
  q = fmaf(q, t, -0x1.25d098p+0f);
  q = fmaf(q, t, -0x1.000f56p+0f);
  return fmaf(-t, quick_exp2(q), max_or_nan(x, -0.0f));
}
KILN_LANEWISE1(op_gelu_roughly, float, rough_gelu(a))

template <class T>
KILN_INLINE T power(T base, T exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 != 0 ? -1 : 1) : 0;
  T result = 1;
  for (; exponent != 0; exponent >>= 1, base *= base)
    if (exponent & 1) result *= base;
  return result;
}
KILN_LANEWISE1(op_neg, int, -a)
KILN_LANEWISE1(op_not, int, ~a)
KILN_LANEWISE1(op_abs, int, a < 0 ? -a : a)
KILN_LANEWISE1(op_sign, int, (a > 0) - (a < 0))
KILN_LANEWISE2(op_max, int, greatest(a, b))
KILN_LANEWISE2(op_min, int, least(a, b))
KILN_LANEWISE2(op_div, int, b == 0 ? 0 : b == -1 ? -a : a / b)
KILN_LANEWISE2(op_rem, int, b == 0 || b == -1 ? 0 : a % b)
KILN_LANEWISE2(op_pow, int, power<int>(a, b))
KILN_LANEWISE1(op_neg, int64_t, -a)
KILN_LANEWISE1(op_not, int64_t, ~a)
KILN_LANEWISE1(op_abs, int64_t, a < 0 ? -a : a)
KILN_LANEWISE1(op_sign, int64_t, (a > 0) - (a < 0))
KILN_LANEWISE2(op_max, int64_t, greatest(a, b))
KILN_LANEWISE2(op_min, int64_t, least(a, b))
KILN_LANEWISE2(op_div, int64_t, b == 0 ? 0 : b == -1 ? -a : a / b)
KILN_LANEWISE2(op_rem, int64_t, b == 0 || b == -1 ? 0 : a % b)
KILN_LANEWISE2(op_pow, int64_t, power<int64_t>(a, b))

// Division by what many values are divided by. Where the divisor is near an end of the range, both
// are brought nearer to 1 first: a quotient that this changes is no number that f32 has.
struct Divisor {
  vf32 divisor, reciprocal, scale;
};
KILN_INLINE Divisor divisor(const vf32& x) {
  Divisor by;
  KILN_EACH_LANE by.scale[l] =
      fabsf(x[l]) > 0x1p100f ? 0x1p-64f : fabsf(x[l]) < 0x1p-100f ? 0x1p64f : 1.0f;
  by.divisor = x * by.scale;
  by.reciprocal = op_reciprocal(by.divisor);
  return by;
}
// With the reciprocal rounded to nearest, one exact remainder corrects the product to the
// quotient's own rounding (P. Markstein, "Computation of elementary functions on the IBM RISC
// System/6000 processor", 1990).
KILN_INLINE vf32 divide_by(vf32 x, const Divisor& by) {
  // An infinity has no remainder.
  KILN_LANES(const float scaled = x.lane[l] * by.scale.lane[l];
             const float quotient = scaled * by.reciprocal.lane[l];
             const float corrected = fmaf(fmaf(-quotient, by.divisor.lane[l], scaled),
                                          by.reciprocal.lane[l], quotient);
             x.lane[l] = corrected == corrected ? corrected : quotient)
  return x;
}
// The same within two units in the last place: for what is rounded to a half.
KILN_INLINE vf32 divide_roughly_by(vf32 x, const Divisor& by) {
  KILN_LANES(x.lane[l] = x.lane[l] * by.scale.lane[l] * by.reciprocal.lane[l])
  return x;
}

}  // namespace
