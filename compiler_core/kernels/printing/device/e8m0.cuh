// e8m0, the type of blocks' scales, as compiler_core/base/half.h converts it. In a register it is an f32
// that it can represent. Only sources that have such values hold this.
namespace {

struct f8e8m0 { unsigned char bits; };

KILN_INLINE float f8e8m0_to_f32(unsigned x) {
  return x == 0xffu ? nan_f32() : as_float(x == 0 ? 0x400000u : x << 23);
}
KILN_INLINE unsigned f32_to_f8e8m0(float x) {
  const unsigned size = as_bits(x) & 0x7fffffffu;
  // 2^-127 is a subnormal of f32, and not rounded up.
  return size >= 0x7f800000u ? 0xffu : (size + (size == 0x400000u ? 0u : 0x400000u)) >> 23;
}
// Not at the left edge: there it would go, since its uses stand above it, in loads and stores (device_text.h).
  template <>
  struct memory<f8e8m0> {
    using vector = vf32;
    KILN_INLINE vector unpack(const Packed<f8e8m0>& p) {
      vector x;
      KILN_EACH_LANE x[l] = f8e8m0_to_f32(p.bits(l));
      return x;
    }
    KILN_INLINE Packed<f8e8m0> pack(const vector& x) {
      Packed<f8e8m0> p;
      p.clear();
      KILN_EACH_LANE p.set(l, f32_to_f8e8m0(x[l]));
      return p;
    }
  };
KILN_INLINE vf32 round_f8e8m0(const vf32& x) { return unpack(pack<f8e8m0>(x)); }

}  // namespace
