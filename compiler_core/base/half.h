// Conversions between f32 and the narrower float types, round to nearest even, NaN kept quiet:
// bit for bit what PyTorch's c10::BFloat16, Half, Float8_e4m3fn, Float8_e5m2 and Float8_e8m0fnu do.
#pragma once

#include <bit>
#include <cstdint>

#include "compiler_core/base/dtype.h"

namespace kiln {

inline float bf16_to_f32(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;  // NaN
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);

// e4m3 has no infinities: what rounds beyond 448 is NaN.
float f8e4m3_to_f32(uint8_t bits);
uint8_t f32_to_f8e4m3(float value);
float f8e5m2_to_f32(uint8_t bits);
uint8_t f32_to_f8e5m2(float value);
// Powers of two from 2^-127 to 2^127, the nearest one, or of two the larger. The sign is lost. Between
// 2^-127 and 2^-126 all become 2^-126; what is less, and 0, 2^-127; what rounds beyond 2^127, and
// infinities, NaN.
float f8e8m0_to_f32(uint8_t bits);
uint8_t f32_to_f8e8m0(float value);

// The nearest value of a half type; the value itself for the others.
double round_to_half(DType dtype, double value);

}  // namespace kiln
