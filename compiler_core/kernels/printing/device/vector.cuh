// Vectors: the LANES neighbouring elements that one thread holds in registers, and lane-wise
// operations on them: the words that generated kernels are written in (printing/expression.h). As in
// cpu/vector.h, masks are vi32 with 0 or -1 a lane. Every loop over lanes is unrolled, so a Vec is
// LANES registers; a splat is one.
namespace {

using int64_t = long;
using uint64_t = unsigned long;

template <class T>
struct Vec {
  T lane[LANES];
  KILN_MEMBER T& operator[](int l) { return lane[l]; }
  KILN_MEMBER const T& operator[](int l) const { return lane[l]; }
};
using vf32 = Vec<float>;
using vf64 = Vec<double>;
using vi32 = Vec<int>;
using vi64 = Vec<int64_t>;
using vindex = Vec<index_t>;  // index_t: int where every buffer is small enough, else int64_t

#define KILN_EACH_LANE _Pragma("unroll") for (int l = 0; l < LANES; ++l)

template <class V>
struct element;
template <class T>
struct element<Vec<T>> { using type = T; };

template <class V, class T>
KILN_INLINE V splat(T x) {
  V v;
  KILN_EACH_LANE v[l] = static_cast<typename element<V>::type>(x);
  return v;
}
template <class V, class From>
KILN_INLINE V convert(From x) {
  V v;
  KILN_EACH_LANE v[l] = static_cast<typename element<V>::type>(x[l]);
  return v;
}
KILN_INLINE vindex lane_numbers() {
  vindex v;
  KILN_EACH_LANE v[l] = l;
  return v;
}

// Vec with Vec, and Vec with one number for all lanes.
#define KILN_OPERATOR(SIGN)                                    \
  template <class T>                                           \
  KILN_INLINE Vec<T> operator SIGN(Vec<T> a, const Vec<T>& b) { \
    KILN_EACH_LANE a[l] = a[l] SIGN b[l];                      \
    return a;                                                  \
  }                                                            \
  template <class T>                                           \
  KILN_INLINE Vec<T> operator SIGN(Vec<T> a, typename element<Vec<T>>::type b) { \
    KILN_EACH_LANE a[l] = a[l] SIGN b;                         \
    return a;                                                  \
  }
KILN_OPERATOR(+)
KILN_OPERATOR(-)
KILN_OPERATOR(*)
KILN_OPERATOR(&)
KILN_OPERATOR(|)
KILN_OPERATOR(^)
#undef KILN_OPERATOR
#define KILN_COMPARISON(SIGN)                                       \
  template <class T>                                                \
  KILN_INLINE vi32 operator SIGN(const Vec<T>& a, const Vec<T>& b) { \
    vi32 mask;                                                      \
    KILN_EACH_LANE mask[l] = a[l] SIGN b[l] ? -1 : 0;               \
    return mask;                                                    \
  }                                                                 \
  template <class T>                                                \
  KILN_INLINE vi32 operator SIGN(const Vec<T>& a, index_t b) {      \
    vi32 mask;                                                      \
    KILN_EACH_LANE mask[l] = a[l] SIGN b ? -1 : 0;                  \
    return mask;                                                    \
  }
KILN_COMPARISON(==)
KILN_COMPARISON(!=)
KILN_COMPARISON(<)
KILN_COMPARISON(<=)
KILN_COMPARISON(>)
KILN_COMPARISON(>=)
#undef KILN_COMPARISON

// Applies a function of one element to each lane.
#define KILN_LANEWISE1(OP, T, RESULT)                \
  KILN_INLINE Vec<T> OP(const Vec<T>& x) {           \
    Vec<T> y;                                        \
    KILN_EACH_LANE { const T a = x[l]; y[l] = RESULT; } \
    return y;                                        \
  }
#define KILN_LANEWISE2(OP, T, RESULT)                               \
  KILN_INLINE Vec<T> OP(const Vec<T>& x, const Vec<T>& y) {         \
    Vec<T> z;                                                       \
    KILN_EACH_LANE { const T a = x[l], b = y[l]; z[l] = RESULT; }   \
    return z;                                                       \
  }

KILN_INLINE index_t smaller(index_t a, index_t b) { return a < b ? a : b; }
KILN_INLINE index_t larger(index_t a, index_t b) { return a > b ? a : b; }

// Indices that are not negative by a constant: divided as unsigned numbers, which is cheaper.
KILN_INLINE unsigned natural(int x) { return static_cast<unsigned>(x); }
KILN_INLINE uint64_t natural(int64_t x) { return static_cast<uint64_t>(x); }
KILN_INLINE index_t quotient(index_t x, index_t by) {
  return static_cast<index_t>(natural(x) / natural(by));
}
KILN_INLINE vindex operator/(vindex x, index_t by) {
  KILN_EACH_LANE x[l] = quotient(x[l], by);
  return x;
}
KILN_INLINE vindex operator%(vindex x, index_t by) {
  KILN_EACH_LANE x[l] = x[l] - quotient(x[l], by) * by;
  return x;
}
// The quotients of `first` and its LANES - 1 successors.
KILN_INLINE vindex quotients(index_t first, index_t by) {
  if (by < LANES) return (splat<vindex>(first) + lane_numbers()) / by;
  const index_t low = quotient(first, by), rest = first - low * by;
  vindex v;
  KILN_EACH_LANE v[l] = low + (rest + l >= by);
  return v;
}

KILN_INLINE index_t clamp_index(index_t x, index_t greatest) {
  return x < 0 ? 0 : x > greatest ? greatest : x;
}
KILN_INLINE vindex clamp_index(vindex x, index_t greatest) {
  KILN_EACH_LANE x[l] = clamp_index(x[l], greatest);
  return x;
}
// An index of op gather: negative counts from the end, out of range is clamped.
template <class T>
KILN_INLINE vindex gather_row(const Vec<T>& x, int64_t rows) {
  vindex row;
  KILN_EACH_LANE {
    int64_t at = x[l];
    at = at < 0 ? at + rows : at;
    row[l] = static_cast<index_t>(at < 0 ? 0 : at >= rows ? rows - 1 : at);
  }
  return row;
}

KILN_LANEWISE1(wrap_i8, int, static_cast<signed char>(a))
KILN_LANEWISE1(wrap_i16, int, static_cast<short>(a))
KILN_LANEWISE1(wrap_u8, int, a & 255)

template <class T>
KILN_INLINE Vec<T> op_select(const vi32& mask, Vec<T> a, const Vec<T>& b) {
  KILN_EACH_LANE a[l] = mask[l] != 0 ? a[l] : b[l];
  return a;
}
template <class V>
KILN_INLINE vi32 op_eq(const V& a, const V& b) { return a == b; }
template <class V>
KILN_INLINE vi32 op_ne(const V& a, const V& b) { return a != b; }
template <class V>
KILN_INLINE vi32 op_lt(const V& a, const V& b) { return a < b; }
template <class V>
KILN_INLINE vi32 op_le(const V& a, const V& b) { return a <= b; }

}  // namespace
