// Elementary functions of f64 lanes: libm's own, lane by lane.
namespace {

#define KILN_UNARY_F64(OP, FUNCTION)                             \
  KILN_INLINE vf64 OP(vf64 x) {                                  \
    for (int l = 0; l < LANES; ++l) x[l] = FUNCTION(x[l]);       \
    return x;                                                    \
  }
#define KILN_BINARY_F64(OP, FUNCTION)                            \
  KILN_INLINE vf64 OP(vf64 a, vf64 b) {                          \
    for (int l = 0; l < LANES; ++l) a[l] = FUNCTION(a[l], b[l]); \
    return a;                                                    \
  }
KILN_UNARY_F64(op_floor, __builtin_floor)
KILN_UNARY_F64(op_ceil, __builtin_ceil)
KILN_UNARY_F64(op_trunc, __builtin_trunc)
KILN_UNARY_F64(op_round, __builtin_nearbyint)
KILN_UNARY_F64(op_sqrt, __builtin_sqrt)
KILN_UNARY_F64(op_exp, __builtin_exp)
KILN_UNARY_F64(op_expm1, __builtin_expm1)
KILN_UNARY_F64(op_log, __builtin_log)
KILN_UNARY_F64(op_log1p, __builtin_log1p)
KILN_UNARY_F64(op_sin, __builtin_sin)
KILN_UNARY_F64(op_cos, __builtin_cos)
KILN_UNARY_F64(op_tan, __builtin_tan)
KILN_UNARY_F64(op_tanh, __builtin_tanh)
KILN_UNARY_F64(op_erf, __builtin_erf)
KILN_BINARY_F64(op_rem, __builtin_fmod)
KILN_BINARY_F64(op_pow, __builtin_pow)
KILN_BINARY_F64(op_atan2, __builtin_atan2)
#undef KILN_UNARY_F64
#undef KILN_BINARY_F64

KILN_INLINE vf64 op_neg(vf64 x) { return -x; }
KILN_INLINE vf64 op_abs(vf64 x) { return bits_as<vf64>(bits_as<vi64>(x) & 0x7fffffffffffffff); }
KILN_INLINE vf64 op_sign(vf64 x) {
  const vf64 one = splat<vf64>(1);
  return x > 0 ? one : (x < 0 ? -one : x);
}
KILN_INLINE vf64 op_div(vf64 a, vf64 b) { return a / b; }
KILN_INLINE vf64 op_reciprocal(vf64 x) { return 1.0 / x; }
KILN_INLINE vf64 op_rsqrt(vf64 x) { return 1.0 / op_sqrt(x); }
KILN_INLINE vf64 op_max(vf64 a, vf64 b) {
  const vf64 greater = a > b ? a : b;
  return a != a ? a : greater;
}
KILN_INLINE vf64 op_min(vf64 a, vf64 b) {
  const vf64 less = a < b ? a : b;
  return a != a ? a : less;
}

}  // namespace
