#include "schema/metrics/histogram.h"

#include <gtest/gtest.h>

#include <array>

namespace kiln {
namespace {

constexpr std::array kTwoBounds = {0.1, 1.0};

TEST(Histogram, BoundsAreInclusiveAndWhatIsAboveCountsToo) {
  Histogram histogram(kTwoBounds);
  for (const double s : {0.05, 0.1, 0.5, 7.0}) histogram.observe(s);
  EXPECT_EQ(histogram.count_in(0), 2);
  EXPECT_EQ(histogram.count_in(1), 1);
  EXPECT_EQ(histogram.count_in(2), 1);
  EXPECT_EQ(histogram.count(), 4);
  EXPECT_DOUBLE_EQ(histogram.sum_s(), 7.65);
}

}  // namespace
}  // namespace kiln
