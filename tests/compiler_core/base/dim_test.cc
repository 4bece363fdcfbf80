#include "compiler_core/base/dim.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

const Dim s0 = Dim::symbol(0), s1 = Dim::symbol(1);

TEST(Dim, EqualExpressionsAreEqualValues) {
  EXPECT_EQ((s0 + Dim(1)) * (s0 - Dim(1)), s0 * s0 - Dim(1));
  EXPECT_EQ(s0 * s1, s1 * s0);
  EXPECT_TRUE((s0 - s0).is(0));
  EXPECT_NE(s0, s1);
}

TEST(Dim, TextRoundTrips) {
  for (const Dim& dim : {Dim(0), Dim(-7), Dim(INT64_MIN), Dim(INT64_MAX), s0, Dim(-1) * s0,
                         Dim(2) * s0 * s1 + Dim(4) * s1 - Dim(9)}) {
    const auto parsed = Dim::parse(dim.to_string());
    ASSERT_TRUE(parsed) << dim.to_string();
    EXPECT_EQ(*parsed, dim) << dim.to_string();
  }
}

TEST(Dim, ParseRefusesWhatIsNoSize) {
  for (const char* text : {"", "x", "s", "1 2", "1+", "s0*", "--1", "9223372036854775808",
                           "s99999999", "4611686018427387904*4"})
    EXPECT_FALSE(Dim::parse(text)) << text;
}

TEST(Dim, OverflowMakesAnInvalidDim) {
  EXPECT_FALSE((Dim(INT64_MAX) + Dim(1)).is_valid());
  EXPECT_FALSE((Dim(INT64_MAX) * Dim(2)).is_valid());
  EXPECT_FALSE((Dim(INT64_MAX) * s0 * Dim(2)).is_valid());
}

TEST(Dim, EvaluatesAndSaysWhatIsUnbound) {
  const std::vector<int64_t> values = {3, 5};
  EXPECT_EQ(*(Dim(2) * s0 * s1 + Dim(1)).evaluate(values), 31);
  EXPECT_FALSE(Dim::symbol(2).evaluate(values));
  const std::vector<int64_t> huge = {INT64_MAX, 2};
  EXPECT_FALSE((s0 * s1).evaluate(huge));
}

TEST(Dim, DividesOnlyExactly) {
  EXPECT_EQ(*Dim::divide_exact(Dim(6) * s0 * s1, Dim(3) * s1), Dim(2) * s0);
  EXPECT_FALSE(Dim::divide_exact(Dim(7), Dim(2)));
  EXPECT_FALSE(Dim::divide_exact(s0, s1));
  EXPECT_FALSE(Dim::divide_exact(s0 + Dim(1), s0));
}

TEST(Dim, LowerBoundHoldsOverTheRange) {
  const auto range = [](SymbolId) { return SymbolRange{2, 10}; };
  EXPECT_EQ((Dim(3) * s0 - s1).lower_bound(range), -4);
  EXPECT_EQ((s0 * s1 - Dim(4)).lower_bound(range), 0);
  // A product of two that are at least 1, which is not seen term by term.
  EXPECT_EQ(((s0 - Dim(1)) * (s1 - Dim(1))).lower_bound(range), 1);
  EXPECT_LE(((s0 - Dim(3)) * (s1 - Dim(1))).lower_bound(range), -9);
}

}  // namespace
}  // namespace kiln
