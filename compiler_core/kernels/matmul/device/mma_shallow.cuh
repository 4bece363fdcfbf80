// f32 for products of few steps, behind mma.cuh. Sums of few products have few roundings, next to
// which MmaF32's own losses are seen: the tensor core cuts a low number off, and the product of both
// low ones is left out.
namespace {

// Low numbers that lose half as much: the factor adds a third to two thirds of what is the last
// place of a tf32 number, so that cutting off is near to rounding. (An addition to the bits could
// make a NaN zero.)
template <int words>
struct NearSplitFloats {
  static constexpr float kTowardsNearest = 1.00033f;
  unsigned high[words], low[words];
  KILN_MEMBER void set(int i, unsigned x) {
    high[i] = (x + 0x1000u) & 0xffffe000u;
    low[i] = as_bits((as_float(x) - as_float(high[i])) * kTowardsNearest);
  }
};
struct MmaShallowF32 {
  static constexpr int depth = 8, unroll = 1;
  static constexpr bool has_last = true;
  using A = NearSplitFloats<4>;
  using B = NearSplitFloats<2>;
  template <bool is_last = false>
  KILN_INLINE void multiply(float (&d)[4], const A& a, const B& b) {
    float part[4] = {0, 0, 0, 0};
    mma_tf32(part, a.low, b.low);
    mma_tf32(part, a.low, b.high);
    mma_tf32(part, a.high, b.low);
    mma_tf32(part, a.high, b.high);
    _Pragma("unroll") for (int i = 0; i < 4; ++i) d[i] = is_last ? add_away(d[i], part[i]) : d[i] + part[i];
  }
};

}  // namespace
