// Vectors of LANES values, masks, and lane-wise helpers: the words that generated kernels are
// written in. GCC vector extensions, no headers. Masks are vi32 with 0 or -1 a lane.
namespace {

#define KILN_INLINE static inline __attribute__((always_inline))
#define KILN_LAMBDA __attribute__((always_inline))

using int64_t = long;
using uint64_t = unsigned long;
using index_t = int64_t;  // places in a loop or buffer

typedef float vf32 __attribute__((vector_size(4 * LANES)));
typedef double vf64 __attribute__((vector_size(8 * LANES)));
typedef int vi32 __attribute__((vector_size(4 * LANES)));
typedef long vi64 __attribute__((vector_size(8 * LANES)));
typedef vi64 vindex;
typedef unsigned vu32 __attribute__((vector_size(4 * LANES)));
typedef unsigned long vu64 __attribute__((vector_size(8 * LANES)));
typedef unsigned short vu16 __attribute__((vector_size(2 * LANES)));
typedef short vi16 __attribute__((vector_size(2 * LANES)));
typedef signed char vi8 __attribute__((vector_size(LANES)));
typedef unsigned char vu8 __attribute__((vector_size(LANES)));

template <class V>
struct element;
template <>
struct element<vf32> { using type = float; };
template <>
struct element<vf64> { using type = double; };
template <>
struct element<vi32> { using type = int; };
template <>
struct element<vi64> { using type = long; };

// x - 0 is x, and the compiler knows it; 0 + x is not, for -0.
template <class V, class T>
KILN_INLINE V splat(T x) {
  return static_cast<typename element<V>::type>(x) - V{};
}
template <class V, class From>
KILN_INLINE V convert(From x) {
  return __builtin_convertvector(x, V);
}
template <class V, class From>
KILN_INLINE V bits_as(From x) {
  static_assert(sizeof(V) == sizeof(From), "a change of type, not of bits");
  return reinterpret_cast<V>(x);
}

// Constants that differ by lane are written as lists: GCC builds what a loop assigns one lane after
// the other, at run time.
template <int... lane>
struct LaneList {};
template <class V, int DISTANCE, int... lane>
KILN_INLINE V partners(LaneList<lane...>) { return V{(lane ^ DISTANCE)...}; }
// Lane l's value: l, its bits changed where DISTANCE has one.
template <class V, int DISTANCE = 0>
KILN_INLINE V lane_numbers_as() {
  return partners<V, DISTANCE>(LaneList<__integer_pack(LANES)...>{});
}
KILN_INLINE vi64 lane_numbers() { return lane_numbers_as<vi64>(); }

KILN_INLINE float infinity_f32() { return __builtin_inff(); }
KILN_INLINE float nan_f32() { return __builtin_nanf(""); }
KILN_INLINE double infinity_f64() { return __builtin_inf(); }
KILN_INLINE double nan_f64() { return __builtin_nan(""); }

KILN_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
KILN_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

KILN_INLINE int64_t clamp_index(int64_t x, int64_t greatest) {
  return x < 0 ? 0 : x > greatest ? greatest : x;
}
KILN_INLINE vi64 clamp_index(vi64 x, int64_t greatest) {
  x = x < 0 ? vi64{} : x;
  return x > greatest ? vi64{} + greatest : x;
}
// An index of op gather: negative counts from the end, out of range is clamped.
KILN_INLINE vi64 gather_row(vi64 x, int64_t rows) {
  return clamp_index(x < 0 ? x + rows : x, rows - 1);
}
KILN_INLINE vi64 gather_row(vi32 x, int64_t rows) { return gather_row(convert<vi64>(x), rows); }

KILN_INLINE vi32 wrap_i8(vi32 x) { return (x << 24) >> 24; }
KILN_INLINE vi32 wrap_i16(vi32 x) { return (x << 16) >> 16; }
KILN_INLINE vi32 wrap_u8(vi32 x) { return x & 255; }

KILN_INLINE vf32 op_select(vi32 mask, vf32 a, vf32 b) { return mask ? a : b; }
KILN_INLINE vi32 op_select(vi32 mask, vi32 a, vi32 b) { return mask ? a : b; }
KILN_INLINE vf64 op_select(vi32 mask, vf64 a, vf64 b) { return convert<vi64>(mask) ? a : b; }
KILN_INLINE vi64 op_select(vi32 mask, vi64 a, vi64 b) { return convert<vi64>(mask) ? a : b; }

template <class V>
KILN_INLINE vi32 op_eq(V a, V b) { return convert<vi32>(a == b); }
template <class V>
KILN_INLINE vi32 op_ne(V a, V b) { return convert<vi32>(a != b); }
template <class V>
KILN_INLINE vi32 op_lt(V a, V b) { return convert<vi32>(a < b); }
template <class V>
KILN_INLINE vi32 op_le(V a, V b) { return convert<vi32>(a <= b); }

}  // namespace
