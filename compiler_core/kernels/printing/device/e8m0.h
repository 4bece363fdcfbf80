// e8m0, the type of blocks' scales, as compiler_core/base/half.h converts it. In a register it is an f32
// that it can represent. Only sources that have such values hold this.
namespace {

struct f8e8m0 { unsigned char bits; };

KILN_INLINE vf32 from_f8e8m0(vu8 x) {
  const vu32 bits = convert<vu32>(x), least = vu32{} + 0x400000, nan = vu32{} + 0x7fc00000;
  const vu32 number = bits == 0 ? least : bits << 23;
  return bits_as<vf32>(bits == 0xff ? nan : number);
}
KILN_INLINE vu8 to_f8e8m0(vf32 x) {
  const vu32 size = bits_as<vu32>(x) & 0x7fffffff;
  // 2^-127 is a subnormal of f32, and not rounded up.
  const vu32 half = vu32{} + 0x400000, nan = vu32{} + 0xff;
  const vu32 rounded = (size + (size == 0x400000 ? vu32{} : half)) >> 23;
  return convert<vu8>(size < 0x7f800000 ? rounded : nan);
}
KILN_INLINE vf32 round_f8e8m0(vf32 x) { return from_f8e8m0(to_f8e8m0(x)); }

template <>
struct memory<f8e8m0> {
  using element = unsigned char;
  using raw = vu8;
  using vector = vf32;
  KILN_INLINE vector to_register(raw x) { return from_f8e8m0(x); }
  KILN_INLINE raw to_memory(vector x) { return to_f8e8m0(x); }
};

}  // namespace
