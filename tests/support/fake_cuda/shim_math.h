// CUDA's device math for cuda_shim.h: libm's functions by the same names, declared here so that no
// system header is read, and what CUDA has beyond them.
#pragma once
#line 5 "shim_math.h"

extern "C" {
#define KILN_FAKE_MATH1(NAME) \
  double NAME(double);        \
  float NAME##f(float);
#define KILN_FAKE_MATH2(NAME)  \
  double NAME(double, double); \
  float NAME##f(float, float);
KILN_FAKE_MATH1(acos)
KILN_FAKE_MATH1(acosh)
KILN_FAKE_MATH1(asin)
KILN_FAKE_MATH1(asinh)
KILN_FAKE_MATH1(atan)
KILN_FAKE_MATH1(atanh)
KILN_FAKE_MATH1(cbrt)
KILN_FAKE_MATH1(ceil)
KILN_FAKE_MATH1(cos)
KILN_FAKE_MATH1(cosh)
KILN_FAKE_MATH1(erf)
KILN_FAKE_MATH1(erfc)
KILN_FAKE_MATH1(exp)
KILN_FAKE_MATH1(exp2)
KILN_FAKE_MATH1(exp10)
KILN_FAKE_MATH1(expm1)
KILN_FAKE_MATH1(fabs)
KILN_FAKE_MATH1(floor)
KILN_FAKE_MATH1(lgamma)
KILN_FAKE_MATH1(log)
KILN_FAKE_MATH1(log10)
KILN_FAKE_MATH1(log1p)
KILN_FAKE_MATH1(log2)
KILN_FAKE_MATH1(nearbyint)
KILN_FAKE_MATH1(rint)
KILN_FAKE_MATH1(round)
KILN_FAKE_MATH1(sin)
KILN_FAKE_MATH1(sinh)
KILN_FAKE_MATH1(sqrt)
KILN_FAKE_MATH1(tan)
KILN_FAKE_MATH1(tanh)
KILN_FAKE_MATH1(tgamma)
KILN_FAKE_MATH1(trunc)
KILN_FAKE_MATH2(atan2)
KILN_FAKE_MATH2(copysign)
KILN_FAKE_MATH2(fmax)
KILN_FAKE_MATH2(fmin)
KILN_FAKE_MATH2(fmod)
KILN_FAKE_MATH2(hypot)
KILN_FAKE_MATH2(pow)
KILN_FAKE_MATH2(remainder)
double fma(double, double, double);
float fmaf(float, float, float);
double ldexp(double, int);
float ldexpf(float, int);
#undef KILN_FAKE_MATH1
#undef KILN_FAKE_MATH2
}

namespace {

[[maybe_unused]] inline float rsqrtf(float x) {
  return 1 / sqrtf(x);
}
[[maybe_unused]] inline double rsqrt(double x) {
  return 1 / sqrt(x);
}
[[maybe_unused]] inline float __saturatef(float x) {
  return x >= 0 ? x < 1 ? x : 1 : 0;
}

// The fast ones: as exact as the others here.
[[maybe_unused]] inline float __expf(float x) {
  return expf(x);
}
[[maybe_unused]] inline float __exp10f(float x) {
  return exp10f(x);
}
[[maybe_unused]] inline float __logf(float x) {
  return logf(x);
}
[[maybe_unused]] inline float __log2f(float x) {
  return log2f(x);
}
[[maybe_unused]] inline float __log10f(float x) {
  return log10f(x);
}
[[maybe_unused]] inline float __sinf(float x) {
  return sinf(x);
}
[[maybe_unused]] inline float __cosf(float x) {
  return cosf(x);
}
[[maybe_unused]] inline float __tanf(float x) {
  return tanf(x);
}
[[maybe_unused]] inline float __powf(float x, float y) {
  return powf(x, y);
}
[[maybe_unused]] inline float __fdividef(float x, float y) {
  return x / y;
}
[[maybe_unused]] inline float __fdiv_rn(float x, float y) {
  return x / y;
}
[[maybe_unused]] inline float __frcp_rn(float x) {
  return 1 / x;
}
[[maybe_unused]] inline float __fsqrt_rn(float x) {
  return sqrtf(x);
}
[[maybe_unused]] inline float __fmaf_rn(float x, float y, float z) {
  return fmaf(x, y, z);
}
// No contraction with what stands beside them.
[[maybe_unused]] __attribute__((noinline)) inline float __fadd_rn(float x, float y) {
  return x + y;
}
[[maybe_unused]] __attribute__((noinline)) inline float __fsub_rn(float x, float y) {
  return x - y;
}
[[maybe_unused]] __attribute__((noinline)) inline float __fmul_rn(float x, float y) {
  return x * y;
}

template <class To, class From>
inline To kiln_fake_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
[[maybe_unused]] inline float __int_as_float(int x) {
  return kiln_fake_bits<float>(x);
}
[[maybe_unused]] inline float __uint_as_float(unsigned x) {
  return kiln_fake_bits<float>(x);
}
[[maybe_unused]] inline int __float_as_int(float x) {
  return kiln_fake_bits<int>(x);
}
[[maybe_unused]] inline unsigned __float_as_uint(float x) {
  return kiln_fake_bits<unsigned>(x);
}
[[maybe_unused]] inline double __longlong_as_double(long long x) {
  return kiln_fake_bits<double>(x);
}
[[maybe_unused]] inline long long __double_as_longlong(double x) {
  return kiln_fake_bits<long long>(x);
}
// Four of the eight bytes of `high`:`low`, chosen by the nibbles of `selector`.
[[maybe_unused]] inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const unsigned long bytes = static_cast<unsigned long>(high) << 32 | low;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<unsigned>(bytes >> ((selector >> (4 * i) & 7) * 8) & 0xff) << (8 * i);
  return result;
}

}  // namespace
