#include "schema/metrics/metrics_text.h"

#include <gtest/gtest.h>

#include <array>

namespace kiln {
namespace {

constexpr std::array kBounds = {0.001, 0.5};

TEST(MetricsText, WritesTheExpositionFormat) {
  Histogram histogram(kBounds);
  histogram.observe(0.0005);
  histogram.observe(0.25);
  histogram.observe(2);
  MetricsText out;
  out.counter("a_total", "Things.", 12'345'678'901);
  out.family("b_seconds", "histogram", "Time.");
  out.histogram(histogram, {{"stage", "tuning"}});
  EXPECT_EQ(out.take(), R"(# HELP a_total Things.
# TYPE a_total counter
a_total 12345678901
# HELP b_seconds Time.
# TYPE b_seconds histogram
b_seconds_bucket{stage="tuning",le="0.001"} 1
b_seconds_bucket{stage="tuning",le="0.5"} 2
b_seconds_bucket{stage="tuning",le="+Inf"} 3
b_seconds_sum{stage="tuning"} 2.2505
b_seconds_count{stage="tuning"} 3
)");
}

TEST(MetricsText, LabelsAreEscaped) {
  MetricsText out;
  out.family("a", "gauge", "Things.");
  out.sample(1, {{"name", "a\"b\\c\nd"}});
  EXPECT_NE(out.take().find(R"(a{name="a\"b\\c\nd"} 1)"), std::string::npos);
}

}  // namespace
}  // namespace kiln
