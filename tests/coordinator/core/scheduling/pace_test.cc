#include "coordinator/core/scheduling/pace.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

Target v3() {
  Target target;
  target.isa = "x86-64-v3";
  return target;
}

TEST(Pace, IsTheMedianOfTheLatest) {
  Pace pace;
  EXPECT_FALSE(pace.median_ms(v3(), Family::kMatmul).has_value());
  pace.saw(v3(), Family::kMatmul, 100, 1);
  pace.saw(v3(), Family::kMatmul, 10'000, 1);  // one outlier says little
  pace.saw(v3(), Family::kMatmul, 400, 2);
  EXPECT_EQ(pace.median_ms(v3(), Family::kMatmul), 200);
  for (int i = 0; i < 40; ++i) pace.saw(v3(), Family::kMatmul, 50, 1);
  EXPECT_EQ(pace.median_ms(v3(), Family::kMatmul), 50);
  EXPECT_FALSE(pace.median_ms(v3(), Family::kPointwise).has_value()) << "each family its own";
}

TEST(Pace, NothingIsLearntFromNoTime) {
  Pace pace;
  pace.saw(v3(), Family::kMatmul, 0, 10);
  EXPECT_FALSE(pace.median_ms(v3(), Family::kMatmul).has_value());
}

}  // namespace
}  // namespace kiln
