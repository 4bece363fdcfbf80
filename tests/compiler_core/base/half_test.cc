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

}  // namespace
}  // namespace kiln
