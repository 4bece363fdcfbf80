// How many windows there are along an axis, of sizes known and open.
#include "compiler_core/ir/verify.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

TEST(CountWindows, IsTheQuotientRoundedDownAndOne) {
  for (const int64_t stride : {1, 2, 3, 5})
    for (int64_t room = 0; room < 12; ++room)
      EXPECT_EQ(*count_windows(room, stride), Dim(room / stride + 1)) << room << " " << stride;
}

// 2 * s0 of padding 1 and window 3, every second place; and of no padding, where one is lost.
TEST(CountWindows, OfAnOpenSizeIsAPolynomialWhereTheStrideDividesIt) {
  const Dim s0 = Dim::symbol(0), s2 = Dim::symbol(2);
  EXPECT_EQ(*count_windows(s0 * 2 - 1, 2), s0);
  EXPECT_EQ(*count_windows(s0 * 2 - 3, 2), s0 - 1);
  EXPECT_EQ(*count_windows(s0 * s2 * 6 + s2 * 3 + 4, 3), s0 * s2 * 2 + s2 + 2);
  EXPECT_EQ(*count_windows(s0 + 4, 1), s0 + 5);
  EXPECT_FALSE(count_windows(s0 + 4, 2));
  for (int64_t value = 2; value < 9; ++value)
    EXPECT_EQ(*count_windows(s0 * 4 - 7, 2)->evaluate({{value}}), (value * 4 - 7) / 2 + 1);
}

TEST(ConvolutionShape, RefusesAStrideThatDoesNotDivideAnOpenSize) {
  const Shape weight = {8, 3, 3, 3};
  const ConvolutionAttr attr{{2, 2}, {1, 1}, {1, 1}, {1, 1}, 1};
  const Dim s0 = Dim::symbol(0);
  EXPECT_EQ(*convolution_shape({1, 3, s0 * 2, 16}, weight, attr), (Shape{1, 8, s0, 8}));
  const auto odd = convolution_shape({1, 3, s0, 16}, weight, attr);
  ASSERT_FALSE(odd);
  EXPECT_NE(odd.error().message.find("stride"), std::string::npos) << odd.error().message;
}

}  // namespace
}  // namespace kiln
