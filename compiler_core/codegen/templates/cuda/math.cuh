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

#define KILN_FLOAT_FUNCTIONS(T, S)                                             \
  KILN_LANEWISE1(op_neg, T, -a)                                                \
  KILN_LANEWISE1(op_abs, T, fabs##S(a))                                        \
  KILN_LANEWISE1(op_sign, T, a != a ? a : a > 0 ? T(1) : a < 0 ? T(-1) : T(0)) \
  KILN_LANEWISE1(op_floor, T, floor##S(a))                                     \
  KILN_LANEWISE1(op_ceil, T, ceil##S(a))                                       \
  KILN_LANEWISE1(op_trunc, T, trunc##S(a))                                     \
  KILN_LANEWISE1(op_round, T, rint##S(a))                                      \
  KILN_LANEWISE1(op_sqrt, T, sqrt##S(a))                                       \
  KILN_LANEWISE1(op_rsqrt, T, rsqrt##S(a))                                     \
  KILN_LANEWISE1(op_reciprocal, T, T(1) / a)                                   \
  KILN_LANEWISE1(op_exp, T, exp##S(a))                                         \
  KILN_LANEWISE1(op_expm1, T, expm1##S(a))                                     \
  KILN_LANEWISE1(op_log, T, log##S(a))                                         \
  KILN_LANEWISE1(op_log1p, T, log1p##S(a))                                     \
  KILN_LANEWISE1(op_tanh, T, tanh##S(a))                                       \
  KILN_LANEWISE1(op_erf, T, erf##S(a))                                         \
  KILN_LANEWISE2(op_div, T, a / b)                                             \
  KILN_LANEWISE2(op_rem, T, fmod##S(a, b))                                     \
  KILN_LANEWISE2(op_pow, T, pow##S(a, b))                                      \
  KILN_LANEWISE2(op_atan2, T, atan2##S(a, b))                                  \
  KILN_LANEWISE2(op_max, T, greatest(a, b))                                    \
  KILN_LANEWISE2(op_min, T, least(a, b))
KILN_FLOAT_FUNCTIONS(float, f)
KILN_FLOAT_FUNCTIONS(double, )
#undef KILN_FLOAT_FUNCTIONS

template <class T>
KILN_INLINE T power(T base, T exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 != 0 ? -1 : 1) : 0;
  T result = 1;
  for (; exponent != 0; exponent >>= 1, base *= base)
    if (exponent & 1) result *= base;
  return result;
}
#define KILN_INTEGER_FUNCTIONS(T)                                     \
  KILN_LANEWISE1(op_neg, T, -a)                                       \
  KILN_LANEWISE1(op_not, T, ~a)                                       \
  KILN_LANEWISE1(op_abs, T, a < 0 ? -a : a)                           \
  KILN_LANEWISE1(op_sign, T, (a > 0) - (a < 0))                       \
  KILN_LANEWISE2(op_max, T, greatest(a, b))                           \
  KILN_LANEWISE2(op_min, T, least(a, b))                              \
  KILN_LANEWISE2(op_div, T, b == 0 ? 0 : b == -1 ? -a : a / b)        \
  KILN_LANEWISE2(op_rem, T, b == 0 || b == -1 ? 0 : a % b)            \
  KILN_LANEWISE2(op_pow, T, power<T>(a, b))
KILN_INTEGER_FUNCTIONS(int)
KILN_INTEGER_FUNCTIONS(int64_t)
#undef KILN_INTEGER_FUNCTIONS

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
  KILN_EACH_LANE {
    const float scaled = x[l] * by.scale[l], quotient = scaled * by.reciprocal[l];
    const float corrected =
        fmaf(fmaf(-quotient, by.divisor[l], scaled), by.reciprocal[l], quotient);
    x[l] = corrected == corrected ? corrected : quotient;  // an infinity has no remainder
  }
  return x;
}
// The same within two units in the last place: for what is rounded to a half.
KILN_INLINE vf32 divide_roughly_by(vf32 x, const Divisor& by) {
  KILN_EACH_LANE x[l] = x[l] * by.scale[l] * by.reciprocal[l];
  return x;
}

}  // namespace
