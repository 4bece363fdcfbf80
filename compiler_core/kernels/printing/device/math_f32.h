// Elementary functions of f32 lanes, to a few units in the last place over the whole range; NaN and
// the infinities as C99 Annex F has them. Polynomials are minimax fits (Remez) on the interval that
// each comment gives; products and sums contract into fused multiply-adds, and the argument
// reductions count on it.
namespace {

#define KILN_COLD static __attribute__((noinline, cold))
#define KILN_INF_F32 __builtin_inff()
#define KILN_NAN_F32 __builtin_nanf("")

KILN_INLINE vf32 op_neg(vf32 x) { return -x; }
KILN_INLINE vf32 op_abs(vf32 x) { return bits_as<vf32>(bits_as<vi32>(x) & 0x7fffffff); }
KILN_INLINE vf32 with_sign_of(vf32 magnitude, vf32 sign) {
  return bits_as<vf32>((bits_as<vi32>(magnitude) & 0x7fffffff) |
                       (bits_as<vi32>(sign) & (-0x7fffffff - 1)));
}
KILN_INLINE vf32 op_sign(vf32 x) {
  const vf32 one = splat<vf32>(1);
  return x > 0 ? one : (x < 0 ? -one : x);  // zero and NaN are their own sign
}
KILN_INLINE vf32 op_div(vf32 a, vf32 b) { return a / b; }
KILN_INLINE vf32 op_reciprocal(vf32 x) { return 1.0f / x; }
// The instructions' own idea: a < b ? a : b, so b when either is NaN.
KILN_INLINE vf32 least_or_second(vf32 a, vf32 b) {
#if LANES == 16 && defined(__AVX512F__)
  return __builtin_ia32_minps512_mask(a, b, a, -1, 4);
#elif LANES == 8 && defined(__AVX__)
  return __builtin_ia32_minps256(a, b);
#elif LANES == 4
  return __builtin_ia32_minps(a, b);
#else
  return a < b ? a : b;
#endif
}
KILN_INLINE vf32 greatest_or_second(vf32 a, vf32 b) {
#if LANES == 16 && defined(__AVX512F__)
  return __builtin_ia32_maxps512_mask(a, b, a, -1, 4);
#elif LANES == 8 && defined(__AVX__)
  return __builtin_ia32_maxps256(a, b);
#elif LANES == 4
  return __builtin_ia32_maxps(a, b);
#else
  return a > b ? a : b;
#endif
}
// NaN wins on either side.
KILN_INLINE vf32 op_max(vf32 a, vf32 b) { return a != a ? a : greatest_or_second(a, b); }
KILN_INLINE vf32 op_min(vf32 a, vf32 b) { return a != a ? a : least_or_second(a, b); }
// x brought into [least, greatest]; NaN stays.
KILN_INLINE vf32 clamp(vf32 x, float least, float greatest) {
  return greatest_or_second(splat<vf32>(least), least_or_second(splat<vf32>(greatest), x));
}

// Whether a lane of the mask is set.
KILN_INLINE bool any(vi32 mask) {
#if LANES == 16 && defined(__AVX512F__)
  return __builtin_ia32_ptestmd512(mask, mask, -1);
#elif LANES == 8 && defined(__AVX__)
  typedef long long quad __attribute__((vector_size(32)));
  return !__builtin_ia32_ptestz256(bits_as<quad>(mask), bits_as<quad>(mask));
#elif LANES == 4 && defined(__SSE4_1__)
  typedef long long pair __attribute__((vector_size(16)));
  return !__builtin_ia32_ptestz128(bits_as<pair>(mask), bits_as<pair>(mask));
#else
  int set = 0;
  for (int l = 0; l < LANES; ++l) set |= mask[l];
  return set != 0;
#endif
}

// Division by what many values are divided by. With the reciprocal rounded to nearest, one exact
// remainder corrects the product to the quotient's own rounding (P. Markstein, "Computation of
// elementary functions on the IBM RISC System/6000 processor", 1990), in a quarter of the time.
struct Divisor {
  vf32 value, reciprocal;
  bool plain;  // no lane is so small or large that the reciprocal loses bits
};
KILN_INLINE Divisor divisor(vf32 x) {
  const vf32 magnitude = op_abs(x);
  return {x, 1.0f / x, !any(~((magnitude > 0x1p-100f) & (magnitude < 0x1p100f)))};
}
KILN_INLINE vf32 divide_by(vf32 x, Divisor by) {
  if (__builtin_expect(!by.plain, 0)) return x / by.value;
  const vf32 quotient = x * by.reciprocal;
  const vf32 rest = x - quotient * by.value;
  const vf32 corrected = quotient + rest * by.reciprocal;
  // Zero has its sign, an infinity or NaN is one, before the correction.
#if LANES == 16 && defined(__AVX512DQ__)
  const unsigned short special = __builtin_ia32_fpclassps512_mask(corrected, 0x9f, -1);
  return __builtin_ia32_blendmps_512_mask(corrected, quotient, special);
#else
  const vf32 magnitude = op_abs(corrected);
  return (magnitude > 0) & (magnitude < KILN_INF_F32) ? corrected : quotient;
#endif
}

// Rounding to integers. From 2^23 on every float is one.
KILN_INLINE vf32 op_trunc(vf32 x) {
  const vf32 whole = convert<vf32>(convert<vi32>(x));
  return with_sign_of(op_abs(x) < 0x1p23f ? whole : x, x);
}
KILN_INLINE vf32 op_floor(vf32 x) {
  const vf32 whole = op_trunc(x);
  return whole > x ? whole - 1.0f : whole;
}
KILN_INLINE vf32 op_ceil(vf32 x) {
  const vf32 whole = op_trunc(x);
  return with_sign_of(whole < x ? whole + 1.0f : whole, x);
}
// Half to even: adding 2^23 leaves no room for a fraction.
KILN_INLINE vf32 op_round(vf32 x) {
  const vf32 magnitude = op_abs(x);
  const vf32 whole = (magnitude + 0x1p23f) - 0x1p23f;
  return with_sign_of(magnitude < 0x1p23f ? whole : magnitude, x);
}
// The same where |x| < 2^22.
KILN_INLINE vf32 round_small(vf32 x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

KILN_INLINE vf32 op_sqrt(vf32 x) {
#if LANES == 16 && defined(__AVX512F__)
  return __builtin_ia32_sqrtps512_mask(x, x, -1, 4);
#elif LANES == 8 && defined(__AVX__)
  return __builtin_ia32_sqrtps256(x);
#elif LANES == 4
  return __builtin_ia32_sqrtps(x);
#else
  for (int l = 0; l < LANES; ++l) x[l] = __builtin_sqrtf(x[l]);
  return x;
#endif
}
KILN_INLINE vf32 op_rsqrt(vf32 x) { return 1.0f / op_sqrt(x); }

// 2^n for n in [-126, 127].
KILN_INLINE vf32 power_of_two(vi32 n) { return bits_as<vf32>((n + 127) << 23); }

// x = n * log(2) + r with |r| <= log(2) / 2.
struct ExpReduction {
  vf32 n, r;
};
KILN_INLINE ExpReduction reduce_exp(vf32 x) {
  const vf32 n = round_small(x * 0x1.715476p0f);
  vf32 r = x - n * 0x1.62e43p-1f;
  r = r - n * -0x1.05c61p-29f;
  return {n, r};
}
// exp(r) - 1 - r on |r| <= 0.348.
KILN_INLINE vf32 exp_tail(vf32 r) {
  vf32 p = r * 0.00138140248f + 0.00836900062f;
  p = p * r + 0.0416684154f;
  p = p * r + 0.166665183f;
  p = p * r + 0.499999933f;
  return p * (r * r);
}

// y * 2^n for whole n in [-252, 254], rounded once where the product is subnormal.
KILN_INLINE vf32 scale(vf32 y, vf32 n) {
#if LANES == 16 && defined(__AVX512F__)
  return __builtin_ia32_scalefps512_mask(y, n, y, -1, 4);
#elif LANES == 8 && defined(__AVX512VL__)
  return __builtin_ia32_scalefps256_mask(y, n, y, -1);
#else
  // In two steps: 2^n itself may be out of range.
  const vi32 whole = convert<vi32>(n), half = whole >> 1;
  return y * power_of_two(half) * power_of_two(whole - half);
#endif
}

KILN_INLINE vf32 op_exp(vf32 x) {
  const ExpReduction at = reduce_exp(clamp(x, -104, 89));  // beyond: 0 and infinity
  return scale(1.0f + (at.r + exp_tail(at.r)), at.n);
}

KILN_INLINE vf32 op_expm1(vf32 x) {
  const vf32 given = x;
  const ExpReduction at = reduce_exp(clamp(x, -20, 89));
  const vf32 p = at.r + exp_tail(at.r);
  const vi32 n = convert<vi32>(at.n) - 1;  // 2^128 is out of range
  const vf32 half = power_of_two(n);
  const vf32 y = (half * p + (half - 0.5f)) * 2.0f;
  return given == 0 ? given : y;  // keeps the sign of zero
}

KILN_INLINE vf32 op_log(vf32 x) {
  const vf32 given = x;
  const vi32 small = x < 0x1p-126f;
  x = small ? x * 0x1p23f : x;
  // x = 2^n * m with m in [sqrt(1/2), sqrt(2)).
  const vi32 shifted = bits_as<vi32>(x) - 0x3f3504f3;
  const vf32 n = convert<vf32>((shifted >> 23) - (small & 23));
  const vf32 f = bits_as<vf32>((shifted & 0x7fffff) + 0x3f3504f3) - 1.0f;
  // (log(1 + f) - f + f^2 / 2) / f^3
  vf32 p = f * 0.0691539276f + -0.117897913f;
  p = p * f + 0.118729567f;
  p = p * f + -0.123843507f;
  p = p * f + 0.142186613f;
  p = p * f + -0.166692508f;
  p = p * f + 0.200022264f;
  p = p * f + -0.249999866f;
  p = p * f + 0.333333104f;
  const vf32 square = f * f;
  vf32 y = p * (f * square) + n * -0x1.05c61p-29f;
  y = y - square * 0.5f;
  y = n * 0x1.62e43p-1f + (f + y);
  y = given == KILN_INF_F32 ? given : y;
  y = given == 0 ? splat<vf32>(-KILN_INF_F32) : y;
  return given < 0 ? splat<vf32>(KILN_NAN_F32) : given != given ? given : y;
}

// log(1 + x) through u = 1 + x rounded: log(u) * x / (u - 1) cancels the rounding.
KILN_INLINE vf32 op_log1p(vf32 x) {
  const vf32 u = 1.0f + x;
  const vf32 y = op_log(u) * (x / (u - 1.0f));
  return u == 1.0f ? x : u == KILN_INF_F32 ? u : y;
}

// x = q * pi/2 + r with |r| a little over pi/4 at most. Each constant below has the bits of pi/2
// that the one before lacks, so r is good for |x| <= kTrigReach; beyond, see the slow paths.
struct TrigReduction {
  vi32 q;
  vf32 r;
};
static constexpr float kTrigReach = 100000;
KILN_INLINE TrigReduction reduce_trig(vf32 x) {
  const vf32 n = round_small(x * 0x1.45f306p-1f);
  vf32 r = x - n * 0x1.921fb6p0f;
  r = r - n * -0x1.777a5cp-25f;
  r = r - n * -0x1.ee59dap-50f;
  return {convert<vi32>(n), r};
}
KILN_INLINE bool out_of_trig_reach(vf32 x) { return any(op_abs(x) > kTrigReach); }
KILN_INLINE vf32 sin_near_zero(vf32 r) {
  const vf32 z = r * r;
  vf32 p = z * 2.71594681e-06f + -0.00019839082f;
  p = p * z + 0.00833332859f;
  p = p * z + -0.166666666f;
  return r + r * (z * p);
}
KILN_INLINE vf32 cos_near_zero(vf32 r) {
  const vf32 z = r * r;
  vf32 p = z * 2.44155198e-05f + -0.00138871688f;
  p = p * z + 0.0416666429f;
  return 1.0f + z * (p * z - 0.5f);
}
KILN_INLINE vf32 sin_of(TrigReduction at) {
  const vi32 odd = (at.q & 1) != 0;
  const vf32 y = odd ? cos_near_zero(at.r) : sin_near_zero(at.r);
  return bits_as<vf32>(bits_as<vi32>(y) ^ ((at.q & 2) << 30));
}
// Lane by lane through libm: arguments so large that pi/2 needs hundreds of bits.
KILN_COLD void sin_slowly(float* x) {
  for (int l = 0; l < LANES; ++l) x[l] = __builtin_sinf(x[l]);
}
KILN_COLD void cos_slowly(float* x) {
  for (int l = 0; l < LANES; ++l) x[l] = __builtin_cosf(x[l]);
}
KILN_COLD void tan_slowly(float* x) {
  for (int l = 0; l < LANES; ++l) x[l] = __builtin_tanf(x[l]);
}
KILN_INLINE vf32 through(void (*slowly)(float*), vf32 x) {
  float lanes[LANES];
  __builtin_memcpy(lanes, &x, sizeof x);
  slowly(lanes);
  __builtin_memcpy(&x, lanes, sizeof x);
  return x;
}

KILN_INLINE vf32 op_sin(vf32 x) {
  if (__builtin_expect(out_of_trig_reach(x), 0)) return through(sin_slowly, x);
  const vf32 y = sin_of(reduce_trig(x));
  return x == 0 ? x : y;  // keeps the sign of zero
}
KILN_INLINE vf32 op_cos(vf32 x) {
  if (__builtin_expect(out_of_trig_reach(x), 0)) return through(cos_slowly, x);
  TrigReduction at = reduce_trig(x);
  at.q = at.q + 1;  // cos(x) = sin(x + pi/2)
  return sin_of(at);
}
KILN_INLINE vf32 op_tan(vf32 x) {
  if (__builtin_expect(out_of_trig_reach(x), 0)) return through(tan_slowly, x);
  const TrigReduction at = reduce_trig(x);
  const vf32 s = sin_near_zero(at.r), c = cos_near_zero(at.r);
  const vi32 odd = (at.q & 1) != 0;
  const vf32 y = (odd ? -c : s) / (odd ? s : c);
  return x == 0 ? x : y;
}

// tanh|x| = e / (e + 2) with e = exp(2|x|) - 1; from 2|x| = 20 on it rounds to 1.
KILN_INLINE vf32 op_tanh(vf32 x) {
  const vf32 twice = least_or_second(splat<vf32>(20), op_abs(x) * 2.0f);
  const ExpReduction at = reduce_exp(twice);
  const vf32 p = at.r + exp_tail(at.r);
  const vf32 power = power_of_two(convert<vi32>(at.n));
  const vf32 e = power * p + (power - 1.0f);
  return with_sign_of(e / (e + 2.0f), x);
}

KILN_INLINE vf32 op_erf(vf32 x) {
  // erf(x) / x - 1 on |x| <= 1.
  const vf32 z = x * x;
  vf32 p = z * 7.88911501e-05f + -0.00080208405f;
  p = p * z + 0.00518953535f;
  p = p * z + -0.0268544447f;
  p = p * z + 0.112836002f;
  p = p * z + -0.376126271f;
  p = p * z + 0.128379166f;
  const vf32 near = x + x * p;
  // log(erfc(t)) on 1 <= t <= 4; from there on erf rounds to 1.
  const vf32 t = least_or_second(splat<vf32>(4), op_abs(x));
  vf32 e = t * 0.000185572586f + -0.00293959306f;
  e = e * t + 0.0218052604f;
  e = e * t + -0.103037246f;
  e = e * t + -0.638225819f;
  e = e * t + -1.12703995f;
  e = e * t + -0.000353740275f;
  const vf32 far = 1.0f - op_exp(e);
  return op_abs(x) < 1.0f ? near : with_sign_of(far, x);
}

// |x|^y as 2^(y * log2|x|) in f64, whose error stays below f32's; then the cases of Annex F.
KILN_INLINE vf32 op_pow(vf32 x, vf32 y) {
  const vf32 magnitude = op_abs(x);
  const vi32 small = magnitude < 0x1p-126f;
  const vi32 bits = bits_as<vi32>(small ? magnitude * 0x1p23f : magnitude) - 0x3f3504f3;
  const vf64 n = convert<vf64>((bits >> 23) - (small & 23));
  const vf64 m = convert<vf64>(bits_as<vf32>((bits & 0x7fffff) + 0x3f3504f3));
  // log(m) = 2 atanh((m - 1) / (m + 1)), its series in f^2 <= 0.0295.
  const vf64 f = (m - 1.0) / (m + 1.0), z = f * f;
  vf64 s = z * (1.0 / 15) + 1.0 / 13;
  s = s * z + 1.0 / 11;
  s = s * z + 1.0 / 9;
  s = s * z + 1.0 / 7;
  s = s * z + 1.0 / 5;
  s = s * z + 1.0 / 3;
  vf64 log2 = n + (f + f * (z * s)) * 2.885390081777926815;
  log2 = convert<vi64>(magnitude == 0) ? splat<vf64>(-__builtin_inf()) : log2;
  log2 = convert<vi64>(magnitude == KILN_INF_F32) ? splat<vf64>(__builtin_inf()) : log2;
  vf64 t = convert<vf64>(y) * log2;
  t = t > 200.0 ? splat<vf64>(200) : t;
  t = t < -200.0 ? splat<vf64>(-200) : t;
  const vf64 whole = (t + 0x1.8p52) - 0x1.8p52;
  const vf64 r = (t - whole) * 0.69314718055994530942;
  vf64 e = r * (1.0 / 40320) + 1.0 / 5040;
  e = e * r + 1.0 / 720;
  e = e * r + 1.0 / 120;
  e = e * r + 1.0 / 24;
  e = e * r + 1.0 / 6;
  e = e * r + 0.5;
  e = e * r + 1.0;
  e = e * r + 1.0;
  const vf64 scale = bits_as<vf64>((convert<vi64>(whole) + 1023) << 52);
  vf32 power = convert<vf32>(e * scale);

  const vf32 one = splat<vf32>(1);
  const vi32 whole_y = op_trunc(y) == y;
  const vi32 odd_y = whole_y & (op_abs(y) < 0x1p24f) & ((convert<vi32>(y) & 1) != 0);
  const vi32 negative = bits_as<vi32>(x) < 0;
  power = negative & odd_y ? -power : power;
  power = (x < 0) & (x > -KILN_INF_F32) & ~whole_y ? splat<vf32>(KILN_NAN_F32) : power;
  power = (x == -1.0f) & (op_abs(y) == KILN_INF_F32) ? one : power;
  power = (x != x) | (y != y) ? x + y : power;
  return (x == 1.0f) | (y == 0) ? one : power;
}

KILN_COLD void rem_lanes(float* a, const float* b) {
  for (int l = 0; l < LANES; ++l) a[l] = __builtin_fmodf(a[l], b[l]);
}
KILN_COLD void atan2_lanes(float* a, const float* b) {
  for (int l = 0; l < LANES; ++l) a[l] = __builtin_atan2f(a[l], b[l]);
}
KILN_INLINE vf32 through(void (*lanes)(float*, const float*), vf32 a, vf32 b) {
  float left[LANES], right[LANES];
  __builtin_memcpy(left, &a, sizeof a);
  __builtin_memcpy(right, &b, sizeof b);
  lanes(left, right);
  __builtin_memcpy(&a, left, sizeof a);
  return a;
}
KILN_INLINE vf32 op_rem(vf32 a, vf32 b) { return through(rem_lanes, a, b); }
KILN_INLINE vf32 op_atan2(vf32 a, vf32 b) { return through(atan2_lanes, a, b); }

}  // namespace
