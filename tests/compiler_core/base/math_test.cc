#include "compiler_core/base/math.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

TEST(MathTest, CeilDivRoundsTowardsPlusInfinity) {
  static_assert(ceil_div(7, 2) == 4);
  EXPECT_EQ(ceil_div(0, 3), 0);
  EXPECT_EQ(ceil_div(1, 3), 1);
  EXPECT_EQ(ceil_div(3, 3), 1);
  EXPECT_EQ(ceil_div(4, 3), 2);
  EXPECT_EQ(ceil_div(-5, 3), -1);
  EXPECT_EQ(ceil_div(-6, 3), -2);
}

TEST(MathTest, CeilDivOfTheLargestSizeDoesNotOverflow) {
  EXPECT_EQ(ceil_div(INT64_MAX, 2), INT64_MAX / 2 + 1);
  EXPECT_EQ(ceil_div(INT64_MAX, INT64_MAX), 1);
}

TEST(MathTest, RoundUpGivesTheNextMultiple) {
  static_assert(round_up(65, 64) == 128);
  EXPECT_EQ(round_up(0, 64), 0);
  EXPECT_EQ(round_up(64, 64), 64);
  EXPECT_EQ(round_up(10, 3), 12);
}

TEST(MathTest, EvenBlocksAreOfWholeTilesAndAsManyAsWanted) {
  static_assert(even_block(100, 48, 8) == 40);  // three of 34 elements
  EXPECT_EQ(even_block(96, 48, 8), 48);
  EXPECT_EQ(even_block(97, 48, 8), 40);
  EXPECT_EQ(even_block(5, 48, 8), 8);
}

TEST(MathTest, PowersOfTwoArePositive) {
  static_assert(is_power_of_two(64));
  for (int bit = 0; bit < 63; ++bit) EXPECT_TRUE(is_power_of_two(int64_t{1} << bit)) << bit;
  for (const int64_t other :
       {int64_t{0}, int64_t{-1}, int64_t{-2}, int64_t{3}, int64_t{96}, INT64_MAX, INT64_MIN})
    EXPECT_FALSE(is_power_of_two(other)) << other;
}

}  // namespace
}  // namespace kiln
