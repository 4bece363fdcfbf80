// LANES vectors of f32 become the LANES vectors across them.
namespace {

// A round: halves of HALF lanes change places.
template <int HALF>
KILN_INLINE void exchange_lanes(vf32 (&x)[LANES]) {
  vi32 low, high;
  for (int l = 0; l < LANES; ++l) {
    const bool upper = (l & HALF) != 0;
    low[l] = upper ? LANES + l - HALF : l;
    high[l] = upper ? LANES + l : l + HALF;
  }
#pragma GCC unroll 32
  for (int i = 0; i < LANES; ++i) {
    if ((i & HALF) != 0) continue;
    const vf32 a = x[i], b = x[i + HALF];
    x[i] = __builtin_shuffle(a, b, low);
    x[i + HALF] = __builtin_shuffle(a, b, high);
  }
}
KILN_INLINE void transpose_lanes(vf32 (&x)[LANES]) {
  exchange_lanes<1>(x);
  exchange_lanes<2>(x);
  if constexpr (LANES > 4) exchange_lanes<4>(x);
  if constexpr (LANES > 8) exchange_lanes<8>(x);
}

}  // namespace
