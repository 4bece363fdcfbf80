#include "compiler_core/program/guard.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

const Dim kLines = Dim::symbol(0), kWidth = Dim::symbol(1);

TEST(Guard, HoldsInsideItsRangeAndAtBothEnds) {
  const Guard guard{kLines * kWidth, 6, 12};
  const auto holds = [&guard](int64_t rows, int64_t columns) {
    return *guard.holds(std::vector<int64_t>{rows, columns});
  };
  EXPECT_TRUE(holds(2, 3));
  EXPECT_TRUE(holds(3, 4));
  EXPECT_FALSE(holds(5, 1));
  EXPECT_FALSE(holds(13, 1));
}

TEST(Guard, OneThatOverflowsIsAnErrorAndNotAnAnswer) {
  const Guard guard{kLines * kLines, INT64_MIN, INT64_MAX};
  const Result<bool> holds = guard.holds(std::vector<int64_t>{int64_t{1} << 32});
  ASSERT_FALSE(holds);
  EXPECT_EQ(holds.error().code, Code::kInvalidArgument);
  EXPECT_NE(holds.error().message.find("overflows"), std::string::npos) << holds.error().message;
  EXPECT_FALSE(guard.holds({})) << "an unbound symbol";
}

TEST(Guard, AllHoldStopsAtTheFirstThatDoesNot) {
  const std::vector<Guard> guards = {{kLines, 1, 8}, {kWidth, 4, 4}};
  EXPECT_TRUE(*all_hold(guards, std::vector<int64_t>{8, 4}));
  EXPECT_FALSE(*all_hold(guards, std::vector<int64_t>{8, 5}));
  EXPECT_FALSE(*all_hold(guards, std::vector<int64_t>{9, 4}));
  EXPECT_TRUE(*all_hold({}, {}));
}

TEST(Guard, ReadsAsAComparison) {
  EXPECT_EQ((Guard{kLines, 1, 4096}.to_string()), "1 <= s0 <= 4096");
  EXPECT_EQ((Guard{kLines * kWidth, INT64_MIN, 64}.to_string()), "s0*s1 <= 64");
  EXPECT_EQ((Guard{kLines, 32, 32}.to_string()), "s0 == 32");
}

}  // namespace
}  // namespace kiln
