// The 16-bit float types. In a register a half is an f32 that it can represent: rounding happens
// where a value becomes a half, storing one only drops zeros.
namespace {

typedef short half8 __attribute__((vector_size(16)));
typedef float float4 __attribute__((vector_size(16)));
typedef float float8 __attribute__((vector_size(32)));

// To nearest even. A NaN stays one if it has no payload beyond a half's: arithmetic on halves makes
// no others.
KILN_INLINE vf32 round_bf16_plain(vf32 x) {
  const vu32 bits = bits_as<vu32>(x);
#if LANES == 16 && defined(__AVX512F__)
  // A mask of the odd results costs one operation less than their last bit.
  const vi32 odd_bit = splat<vi32>(0x10000), to_even = splat<vi32>(0x8000);
  const unsigned short odd = __builtin_ia32_ptestmd512(bits_as<vi32>(bits), odd_bit, -1);
  const vi32 rounded = __builtin_ia32_paddd512_mask(bits_as<vi32>(bits), to_even,
                                                    bits_as<vi32>(bits + 0x7fff), odd);
  return bits_as<vf32>(bits_as<vu32>(rounded) & 0xffff0000);
#else
  return bits_as<vf32>((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000);
#endif
}
// The same for any f32: NaN stays NaN.
KILN_INLINE vf32 round_bf16(vf32 x) {
  return x != x ? bits_as<vf32>(splat<vi32>(0x7fc00000)) : round_bf16_plain(x);
}

#if LANES == 16 && defined(__AVX512F__)
KILN_INLINE vf32 from_f16(vu16 x) {
  return __builtin_ia32_vcvtph2ps512_mask(bits_as<vi16>(x), vf32{}, -1, 4);
}
KILN_INLINE vu16 to_f16(vf32 x) {
  return bits_as<vu16>(__builtin_ia32_vcvtps2ph512_mask(x, 0, vi16{}, -1));
}
#else
KILN_INLINE vf32 from_f16(vu16 x) {
#if LANES == 4
  half8 bits = {};
  __builtin_memcpy(&bits, &x, sizeof x);
  return __builtin_ia32_vcvtph2ps(bits);
#else
  vf32 y;
  for (int part = 0; part < LANES / 8; ++part) {
    half8 bits;
    __builtin_memcpy(&bits, reinterpret_cast<const char*>(&x) + part * 16, 16);
    const float8 wide = __builtin_ia32_vcvtph2ps256(bits);
    __builtin_memcpy(reinterpret_cast<char*>(&y) + part * 32, &wide, 32);
  }
  return y;
#endif
}
KILN_INLINE vu16 to_f16(vf32 x) {
  vu16 y;
#if LANES == 4
  const half8 bits = __builtin_ia32_vcvtps2ph(x, 0);
  __builtin_memcpy(&y, &bits, sizeof y);
#else
  for (int part = 0; part < LANES / 8; ++part) {
    float8 wide;
    __builtin_memcpy(&wide, reinterpret_cast<const char*>(&x) + part * 32, 32);
    const half8 bits = __builtin_ia32_vcvtps2ph256(wide, 0);
    __builtin_memcpy(reinterpret_cast<char*>(&y) + part * 16, &bits, 16);
  }
#endif
  return y;
}
#endif
KILN_INLINE vf32 round_f16(vf32 x) { return from_f16(to_f16(x)); }

}  // namespace
