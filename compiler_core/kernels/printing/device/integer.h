// Integer and bool lanes. Sums and products wrap (the sources are compiled with -fwrapv). Division
// by zero gives 0 and never traps: a lane past a tail divides by it too.
namespace {

KILN_INLINE vi32 op_neg(vi32 x) { return -x; }
KILN_INLINE vi64 op_neg(vi64 x) { return -x; }
KILN_INLINE vi32 op_not(vi32 x) { return ~x; }
KILN_INLINE vi64 op_not(vi64 x) { return ~x; }
KILN_INLINE vi32 op_abs(vi32 x) { return x < 0 ? -x : x; }
KILN_INLINE vi64 op_abs(vi64 x) { return x < 0 ? -x : x; }
KILN_INLINE vi32 op_sign(vi32 x) { return (x < 0) - (x > 0); }
KILN_INLINE vi64 op_sign(vi64 x) { return (x < 0) - (x > 0); }
KILN_INLINE vi32 op_max(vi32 a, vi32 b) { return a > b ? a : b; }
KILN_INLINE vi64 op_max(vi64 a, vi64 b) { return a > b ? a : b; }
KILN_INLINE vi32 op_min(vi32 a, vi32 b) { return a < b ? a : b; }
KILN_INLINE vi64 op_min(vi64 a, vi64 b) { return a < b ? a : b; }

template <class T>
KILN_INLINE T divide(T a, T b) {
  return b == 0 ? 0 : b == -1 ? -a : a / b;
}
template <class T>
KILN_INLINE T remainder(T a, T b) {
  return b == 0 || b == -1 ? 0 : a % b;
}
template <class T>
KILN_INLINE T power(T base, T exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 != 0 ? -1 : 1) : 0;
  T result = 1;
  for (; exponent != 0; exponent >>= 1, base *= base)
    if (exponent & 1) result *= base;
  return result;
}
#define KILN_BY_LANE(OP, FUNCTION, V)                              \
  KILN_INLINE V OP(V a, V b) {                                     \
    for (int l = 0; l < LANES; ++l) a[l] = FUNCTION(a[l], b[l]);   \
    return a;                                                      \
  }
KILN_BY_LANE(op_div, divide<int>, vi32)
KILN_BY_LANE(op_div, divide<long>, vi64)
KILN_BY_LANE(op_rem, remainder<int>, vi32)
KILN_BY_LANE(op_rem, remainder<long>, vi64)
KILN_BY_LANE(op_pow, power<int>, vi32)
KILN_BY_LANE(op_pow, power<long>, vi64)
#undef KILN_BY_LANE

}  // namespace
