#include "compiler_core/base/half.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kiln {
namespace {

TEST(Half, EveryF16SurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float value = f16_to_f32(half);
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
    else
      EXPECT_EQ(f32_to_f16(value), half) << bits;
  }
}

TEST(Half, EveryBf16SurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float value = bf16_to_f32(half);
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(value))));
    else
      EXPECT_EQ(f32_to_bf16(value), half) << bits;
  }
}

// The neighbours of every finite f16: a value between two of them goes to the nearer, a tie to the
// even one.
TEST(Half, F16RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = f16_to_f32(static_cast<uint16_t>(bits));
    const float high = f16_to_f32(static_cast<uint16_t>(bits + 1));
    const float middle = (low + high) / 2;
    EXPECT_EQ(f32_to_f16(middle), bits + (bits & 1)) << bits;
    EXPECT_EQ(f32_to_f16(std::nextafter(middle, low)), bits);
    EXPECT_EQ(f32_to_f16(std::nextafter(middle, high)), bits + 1);
    EXPECT_EQ(f32_to_f16(-middle), 0x8000u | (bits + (bits & 1)));
  }
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
}

TEST(Half, Bf16RoundsToNearestEven) {
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1p-8f), 0x3f80);      // tie, even below
  EXPECT_EQ(f32_to_bf16(1.0f + 3 * 0x1p-8f), 0x3f82);  // tie, even above
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1p-8f + 0x1p-20f), 0x3f81);
  EXPECT_EQ(f32_to_bf16(3.4028235e38f), 0x7f80);  // rounds to infinity
}

// Each f8 type: its conversions, the codes of its greatest value and of what is beyond.
struct Eight {
  float (*to_f32)(uint8_t);
  uint8_t (*from_f32)(float);
  uint8_t greatest, beyond, nan;
};
constexpr Eight kE4M3{f8e4m3_to_f32, f32_to_f8e4m3, 0x7e, 0x7f, 0x7f};
constexpr Eight kE5M2{f8e5m2_to_f32, f32_to_f8e5m2, 0x7b, 0x7c, 0x7f};

TEST(Half, EveryF8SurvivesARoundTrip) {
  for (const Eight& type : {kE4M3, kE5M2})
    for (uint32_t bits = 0; bits < 256; ++bits) {
      const float value = type.to_f32(static_cast<uint8_t>(bits));
      if (std::isnan(value))
        EXPECT_TRUE(std::isnan(type.to_f32(type.from_f32(value)))) << bits;
      else
        EXPECT_EQ(type.from_f32(value), bits);
    }
  EXPECT_EQ(f8e4m3_to_f32(0x7e), 448.0f);
  EXPECT_EQ(f8e4m3_to_f32(0x81), -0x1p-9f);
  EXPECT_TRUE(std::isnan(f8e4m3_to_f32(0xff)));
  EXPECT_EQ(f8e5m2_to_f32(0x7b), 57344.0f);
  EXPECT_EQ(f8e5m2_to_f32(0x01), 0x1p-16f);
  EXPECT_TRUE(std::isinf(f8e5m2_to_f32(0xfc)));
}

TEST(Half, F8RoundsToNearestEvenAndOverflowsAsTorchDoes) {
  for (const Eight& type : {kE4M3, kE5M2}) {
    for (uint32_t bits = 0; bits < type.greatest; ++bits) {
      const float low = type.to_f32(static_cast<uint8_t>(bits));
      const float high = type.to_f32(static_cast<uint8_t>(bits + 1)), middle = (low + high) / 2;
      EXPECT_EQ(type.from_f32(middle), bits + (bits & 1)) << bits;
      EXPECT_EQ(type.from_f32(std::nextafter(middle, low)), bits);
      EXPECT_EQ(type.from_f32(std::nextafter(middle, high)), bits + 1);
      EXPECT_EQ(type.from_f32(-middle), 0x80u | (bits + (bits & 1)));
    }
    EXPECT_EQ(type.from_f32(HUGE_VALF), type.beyond);
    EXPECT_EQ(type.from_f32(std::nanf("")), type.nan);
    EXPECT_EQ(type.from_f32(3e38f), type.beyond);
  }
  EXPECT_EQ(f32_to_f8e4m3(464.0f), 0x7e);  // the tie goes to 448
  EXPECT_EQ(f32_to_f8e4m3(464.1f), 0x7f);
  EXPECT_EQ(f32_to_f8e5m2(61439.0f), 0x7b);
  EXPECT_EQ(f32_to_f8e5m2(61440.0f), 0x7c);
}

TEST(Half, EveryE8M0IsAPowerOfTwoAndSurvivesARoundTrip) {
  for (int bits = 0; bits < 255; ++bits) {
    const auto code = static_cast<uint8_t>(bits);
    EXPECT_EQ(f8e8m0_to_f32(code), std::ldexp(1.0f, bits - 127));
    EXPECT_EQ(f32_to_f8e8m0(f8e8m0_to_f32(code)), code);
    EXPECT_EQ(f32_to_f8e8m0(-f8e8m0_to_f32(code)), code) << "the sign is lost";
  }
  EXPECT_TRUE(std::isnan(f8e8m0_to_f32(0xff)));
}

// What torch 2.11 gives for each.
TEST(Half, F32RoundsToE8M0AsTorchDoes) {
  for (int bits = 1; bits < 254; ++bits) {
    const float low = std::ldexp(1.0f, bits - 127), middle = 1.5f * low;
    EXPECT_EQ(f32_to_f8e8m0(middle), bits + 1) << "halfway, to the larger";
    EXPECT_EQ(f32_to_f8e8m0(std::nextafter(middle, 0.0f)), bits);
    EXPECT_EQ(f32_to_f8e8m0(std::nextafter(2 * low, 0.0f)), bits + 1);
  }
  const std::pair<float, uint8_t> cases[] = {
      {0.0f, 0},         {-0.0f, 0},           {0x1p-149f, 0},         {0x1p-128f, 0},
      {0x1p-127f, 0},    {0x1.8p-127f, 1},     {0x1.4p-127f, 1},       {0x1.00001p-127f, 1},
      {3.4e38f, 255},    {0x1.8p127f, 255},    {0x1.7ffffep127f, 254}, {HUGE_VALF, 255},
      {-HUGE_VALF, 255}, {std::nanf(""), 255}, {-3.0f, 129},           {6.0f, 130}};
  for (const auto& [value, code] : cases) EXPECT_EQ(f32_to_f8e8m0(value), code) << value;
}

}  // namespace
}  // namespace kiln
