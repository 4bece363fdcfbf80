// Vectors: the LANES neighbouring elements that one thread holds in registers, and lane-wise
// operations on them: the words that generated kernels are written in (printing/expression.h). As in
// cpu/vector.h, masks are vi32 with 0 or -1 a lane. Every loop over lanes is unrolled, so a Vec is
// LANES registers; a splat is one.
//
// What stands in every kernel many times is written out lane by lane, KILN_LANES(statement), on x.lane[l]
// itself: a loop and a call of operator[] for each lane cost NVRTC three times as much, for the same
// instructions.
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

#define KILN_LANE(NUMBER, ...)                  \
  {                                             \
    [[maybe_unused]] constexpr int l = NUMBER;  \
    __VA_ARGS__;                                \
  }
#define KILN_LANES_1(...) KILN_LANE(0, __VA_ARGS__)
#define KILN_LANES_2(...) KILN_LANES_1(__VA_ARGS__) KILN_LANE(1, __VA_ARGS__)
#define KILN_LANES_4(...) \
  KILN_LANES_2(__VA_ARGS__) KILN_LANE(2, __VA_ARGS__) KILN_LANE(3, __VA_ARGS__)
#define KILN_LANES_8(...)                                                           \
  KILN_LANES_4(__VA_ARGS__) KILN_LANE(4, __VA_ARGS__) KILN_LANE(5, __VA_ARGS__)      \
  KILN_LANE(6, __VA_ARGS__) KILN_LANE(7, __VA_ARGS__)
#define KILN_LANES_16(...)                                                          \
  KILN_LANES_8(__VA_ARGS__) KILN_LANE(8, __VA_ARGS__) KILN_LANE(9, __VA_ARGS__)      \
  KILN_LANE(10, __VA_ARGS__) KILN_LANE(11, __VA_ARGS__) KILN_LANE(12, __VA_ARGS__)   \
  KILN_LANE(13, __VA_ARGS__) KILN_LANE(14, __VA_ARGS__) KILN_LANE(15, __VA_ARGS__)
#define KILN_LANES_OF(COUNT) KILN_LANES_##COUNT
#define KILN_LANES_BY(COUNT) KILN_LANES_OF(COUNT)
#define KILN_LANES KILN_LANES_BY(LANES)

template <class V>
struct element;
template <class T>
struct element<Vec<T>> { using type = T; };

template <class V, class T>
KILN_INLINE V splat(T x) {
  V v;
  const auto all = static_cast<typename element<V>::type>(x);
  KILN_LANES(v.lane[l] = all)
  return v;
}
template <class V, class From>
KILN_INLINE V convert(const From& x) {
  V v;
  KILN_LANES(v.lane[l] = static_cast<typename element<V>::type>(x.lane[l]))
  return v;
}
KILN_INLINE vindex lane_numbers() {
  vindex v;
  KILN_LANES(v.lane[l] = l)
  return v;
}

// Vec with Vec, and Vec with one number for all lanes.
#define KILN_OPERATOR(SIGN)                                    \
  template <class T>                                           \
  KILN_INLINE Vec<T> operator SIGN(const Vec<T>& a, const Vec<T>& b) { \
    Vec<T> c;                                                  \
    KILN_LANES(c.lane[l] = a.lane[l] SIGN b.lane[l])           \
    return c;                                                  \
  }                                                            \
  template <class T>                                           \
  KILN_INLINE Vec<T> operator SIGN(const Vec<T>& a, typename element<Vec<T>>::type b) { \
    Vec<T> c;                                                  \
    KILN_LANES(c.lane[l] = a.lane[l] SIGN b)                   \
    return c;                                                  \
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
    KILN_LANES(mask.lane[l] = a.lane[l] SIGN b.lane[l] ? -1 : 0)    \
    return mask;                                                    \
  }                                                                 \
  template <class T>                                                \
  KILN_INLINE vi32 operator SIGN(const Vec<T>& a, index_t b) {      \
    vi32 mask;                                                      \
    KILN_LANES(mask.lane[l] = a.lane[l] SIGN b ? -1 : 0)            \
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
    KILN_LANES(const T a = x.lane[l]; y.lane[l] = RESULT) \
    return y;                                        \
  }
#define KILN_LANEWISE2(OP, T, RESULT)                               \
  KILN_INLINE Vec<T> OP(const Vec<T>& x, const Vec<T>& y) {         \
    Vec<T> z;                                                       \
    KILN_LANES(const T a = x.lane[l]; const T b = y.lane[l]; z.lane[l] = RESULT) \
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
  KILN_LANES(x.lane[l] = quotient(x.lane[l], by))
  return x;
}
KILN_INLINE vindex operator%(vindex x, index_t by) {
  KILN_LANES(x.lane[l] = x.lane[l] - quotient(x.lane[l], by) * by)
  return x;
}
// The quotients of `first` and its LANES - 1 successors.
KILN_INLINE vindex quotients(index_t first, index_t by) {
  if (by < LANES) return (splat<vindex>(first) + lane_numbers()) / by;
  const index_t low = quotient(first, by), rest = first - low * by;
  vindex v;
  KILN_LANES(v.lane[l] = low + (rest + l >= by))
  return v;
}

KILN_INLINE index_t clamp_index(index_t x, index_t greatest) {
  return x < 0 ? 0 : x > greatest ? greatest : x;
}
KILN_INLINE vindex clamp_index(vindex x, index_t greatest) {
  KILN_LANES(x.lane[l] = clamp_index(x.lane[l], greatest))
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
KILN_INLINE Vec<T> op_select(const vi32& mask, const Vec<T>& a, const Vec<T>& b) {
  Vec<T> c;
  KILN_LANES(c.lane[l] = mask.lane[l] != 0 ? a.lane[l] : b.lane[l])
  return c;
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
