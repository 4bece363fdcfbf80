#include "coordinator/core/scheduling/latency_estimator.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

Target v3() {
  Target target;
  target.isa = "x86-64-v3";
  return target;
}

TEST(LatencyEstimator, IsTheMedianOfTheLatest) {
  LatencyEstimator latency;
  EXPECT_FALSE(latency.median_ms(v3(), Family::kMatmul).has_value());
  latency.saw(v3(), Family::kMatmul, 100, 1);
  latency.saw(v3(), Family::kMatmul, 10'000, 1);  // one outlier says little
  latency.saw(v3(), Family::kMatmul, 400, 2);
  EXPECT_EQ(latency.median_ms(v3(), Family::kMatmul), 200);
  for (int i = 0; i < 40; ++i) latency.saw(v3(), Family::kMatmul, 50, 1);
  EXPECT_EQ(latency.median_ms(v3(), Family::kMatmul), 50);
  EXPECT_FALSE(latency.median_ms(v3(), Family::kPointwise).has_value()) << "each family its own";
}

TEST(LatencyEstimator, NothingIsLearntFromNoTime) {
  LatencyEstimator latency;
  latency.saw(v3(), Family::kMatmul, 0, 10);
  EXPECT_FALSE(latency.median_ms(v3(), Family::kMatmul).has_value());
}

}  // namespace
}  // namespace kiln
