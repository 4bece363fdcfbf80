#include "compiler_core/base/half.h"

#include <limits>

namespace kiln {

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 31u;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  // Zero and subnormals: mantissa * 2^-24, exact in f32.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign ? -magnitude : magnitude;
}

uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);   // NaN
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to infinity
  if (magnitude < 0x38800000u) {
    // Subnormal in f16: adding 0.5 lets the FPU round at the right bit.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u;
  return static_cast<uint16_t>(sign | rounded >> 13);
}

float f8e4m3_to_f32(uint8_t bits) {
  if ((bits & 0x7fu) == 0x7fu) return std::numeric_limits<float>::quiet_NaN();
  // As f16 bits the value is too small by 2^8: the exponents' biases are 7 and 15.
  return f16_to_f32(static_cast<uint16_t>((bits & 0x80u) << 8 | (bits & 0x7fu) << 7)) * 256.0f;
}

uint8_t f32_to_f8e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
  const auto with_sign = [&](uint32_t code) {
    return static_cast<uint8_t>((bits >> 24 & 0x80u) | code);
  };
  if (magnitude >= 0x43f00000u) return with_sign(0x7f);  // 480, infinity, NaN
  if (magnitude < 0x3c800000u) {
    // Subnormal: the last place of 2^14 is that of these.
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
    return with_sign(std::bit_cast<uint32_t>(shifted) - 0x46800000u);
  }
  return with_sign((magnitude + 0x7ffffu + ((magnitude >> 20) & 1u) - 0x3c000000u) >> 20);
}

float f8e5m2_to_f32(uint8_t bits) {
  return f16_to_f32(static_cast<uint16_t>(bits << 8));
}

uint8_t f32_to_f8e5m2(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
  const auto with_sign = [&](uint32_t code) {
    return static_cast<uint8_t>((bits >> 24 & 0x80u) | code);
  };
  if (magnitude > 0x7f800000u) return with_sign(0x7f);   // NaN
  if (magnitude >= 0x47800000u) return with_sign(0x7c);  // infinity
  if (magnitude < 0x38800000u) {
    // Subnormal: the last place of 2^7 is that of these.
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p7f;
    return with_sign(std::bit_cast<uint32_t>(shifted) - 0x43000000u);
  }
  return with_sign((magnitude + 0xfffffu + ((magnitude >> 21) & 1u) - 0x38000000u) >> 21);
}

float f8e8m0_to_f32(uint8_t bits) {
  if (bits == 0xff) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(bits == 0 ? 0x400000u : static_cast<uint32_t>(bits) << 23);
}

uint8_t f32_to_f8e8m0(float value) {
  const uint32_t magnitude = std::bit_cast<uint32_t>(value) & 0x7fffffffu;
  if (magnitude >= 0x7f800000u) return 0xff;  // infinity, NaN
  // 2^-127 is a subnormal of f32, and not rounded up.
  return static_cast<uint8_t>((magnitude + (magnitude == 0x400000u ? 0 : 0x400000u)) >> 23);
}

double round_to_half(DType dtype, double value) {
  const float narrow = static_cast<float>(value);
  switch (dtype) {
    case DType::kF16:
      return f16_to_f32(f32_to_f16(narrow));
    case DType::kBF16:
      return bf16_to_f32(f32_to_bf16(narrow));
    case DType::kF8E4M3:
      return f8e4m3_to_f32(f32_to_f8e4m3(narrow));
    case DType::kF8E5M2:
      return f8e5m2_to_f32(f32_to_f8e5m2(narrow));
    case DType::kF8E8M0:
      return f8e8m0_to_f32(f32_to_f8e8m0(narrow));
    default:
      return value;
  }
}

}  // namespace kiln
