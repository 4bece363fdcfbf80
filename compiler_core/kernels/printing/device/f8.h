// The 8-bit float types, as compiler_core/base/half.h converts them. In a register an f8 is an f32
// that it can represent. Only sources that have such values hold this.
namespace {

struct f8e4m3 { unsigned char bits; };
struct f8e5m2 { unsigned char bits; };

// The exponent's bias is less than an f16's by 8. There are no infinities; all ones are NaN.
KILN_INLINE vf32 from_f8e4m3(vu8 x) {
  const vu32 bits = convert<vu32>(x), size = bits & 0x7f;
  const vf32 value = from_f16(convert<vu16>((bits & 0x80) << 8 | size << 7)) * 256.0f;
  return size == 0x7f ? bits_as<vf32>(splat<vi32>(0x7fc00000)) : value;
}
KILN_INLINE vu8 to_f8e4m3(vf32 x) {
  const vu32 bits = bits_as<vu32>(x), size = bits & 0x7fffffff;
  // The last place of 2^14 is that of subnormals.
  const vu32 subnormal = bits_as<vu32>(bits_as<vf32>(size) + 0x1p14f) - 0x46800000;
  const vu32 normal = (size + 0x7ffff + ((size >> 20) & 1) - 0x3c000000) >> 20;
  const vu32 nan = vu32{} + 0x7f;
  const vu32 code = size < 0x3c800000 ? subnormal : normal;
  return convert<vu8>((size < 0x43f00000 ? code : nan) | ((bits >> 24) & 0x80));
}
KILN_INLINE vf32 round_f8e4m3(vf32 x) { return from_f8e4m3(to_f8e4m3(x)); }

// The upper half of an f16.
KILN_INLINE vf32 from_f8e5m2(vu8 x) { return from_f16(convert<vu16>(x) << 8); }
KILN_INLINE vu8 to_f8e5m2(vf32 x) {
  const vu32 bits = bits_as<vu32>(x), size = bits & 0x7fffffff;
  // The last place of 2^7 is that of subnormals.
  const vu32 subnormal = bits_as<vu32>(bits_as<vf32>(size) + 0x1p7f) - 0x43000000;
  const vu32 normal = (size + 0xfffff + ((size >> 21) & 1) - 0x38000000) >> 21;
  const vu32 nan = vu32{} + 0x7f, infinity = vu32{} + 0x7c;
  const vu32 code = size < 0x38800000 ? subnormal : normal;
  const vu32 large = size > 0x7f800000 ? nan : infinity;
  return convert<vu8>((size < 0x47800000 ? code : large) | ((bits >> 24) & 0x80));
}
KILN_INLINE vf32 round_f8e5m2(vf32 x) { return from_f8e5m2(to_f8e5m2(x)); }

#define KILN_MEMORY_F8(TYPE)                                            \
  template <>                                                         \
  struct memory<TYPE> {                                               \
    using element = unsigned char;                                    \
    using raw = vu8;                                                  \
    using vector = vf32;                                              \
    KILN_INLINE vector to_register(raw x) { return from_##TYPE(x); }  \
    KILN_INLINE raw to_memory(vector x) { return to_##TYPE(x); }      \
  };
KILN_MEMORY_F8(f8e4m3)
KILN_MEMORY_F8(f8e5m2)
#undef KILN_MEMORY_F8

}  // namespace
