#include "compiler_core/tune/measurement.h"

#include <gtest/gtest.h>

#include <functional>

namespace kiln {
namespace {

TEST(Measurement, MedianAndSpreadAreInterpolated) {
  EXPECT_DOUBLE_EQ((Measurement{{3, 1, 2}}).median_us(), 2);
  EXPECT_DOUBLE_EQ((Measurement{{4, 1, 2, 3}}).median_us(), 2.5);
  EXPECT_DOUBLE_EQ((Measurement{{5, 1, 4, 2, 3}}).spread_us(), 2);
  EXPECT_DOUBLE_EQ((Measurement{{7}}).median_us(), 7);
  EXPECT_DOUBLE_EQ((Measurement{{7}}).spread_us(), 0);
}

TEST(Measurement, WithoutSamplesIsZero) {
  EXPECT_EQ(Measurement{}.median_us(), 0);
  EXPECT_EQ(Measurement{}.spread_us(), 0);
}

TEST(Measurement, OneOutlierDoesNotMoveTheMedian) {
  EXPECT_DOUBLE_EQ((Measurement{{1, 1, 1e9, 1, 1}}).median_us(), 1);
}

TEST(Verdict, NamesRoundTrip) {
  for (int value = 1; value <= 7; ++value) {
    const auto verdict = static_cast<Verdict>(value);
    EXPECT_EQ(parse_verdict(to_string(verdict)).value(), verdict);
  }
  EXPECT_FALSE(parse_verdict("unknown"));
  EXPECT_FALSE(parse_verdict(""));
}

TEST(Verdict, OnlyWhatAnotherTryCannotChangeIsTerminal) {
  for (Verdict verdict :
       {Verdict::kOk, Verdict::kCompileFailed, Verdict::kWrongResult, Verdict::kOutOfBounds})
    EXPECT_TRUE(is_terminal(verdict)) << to_string(verdict);
  for (Verdict verdict : {Verdict::kTimedOut, Verdict::kRunnerDied, Verdict::kDeviceLost})
    EXPECT_FALSE(is_terminal(verdict)) << to_string(verdict);
}

TEST(KernelKey, EveryPartChangesIt) {
  const Digest workload = Digest::of("workload");
  const Target target{Backend::kCpu, "x86-64-v3", "model", 2, {}};
  const MeasurementPolicy policy;
  const Digest key = kernel_key(workload, target, Mode::kDefault, policy);
  EXPECT_EQ(key, kernel_key(workload, target, Mode::kDefault, policy));
  EXPECT_NE(key, kernel_key(Digest::of("other"), target, Mode::kDefault, policy));
  EXPECT_NE(key, kernel_key(workload, {}, Mode::kDefault, policy));
  EXPECT_NE(key, kernel_key(workload, target, Mode::kMaxAutotune, policy));
  const std::vector<std::function<void(MeasurementPolicy&)>> changes = {
      [](MeasurementPolicy& p) { p.screen_runs++; },
      [](MeasurementPolicy& p) { p.screen_drop += 0.5; },
      [](MeasurementPolicy& p) { p.race_runs++; },
      [](MeasurementPolicy& p) { p.race_drop += 0.5; },
      [](MeasurementPolicy& p) { p.finalists++; },
      [](MeasurementPolicy& p) { p.final_runs++; },
      [](MeasurementPolicy& p) { p.tie += 0.5; },
      [](MeasurementPolicy& p) { p.launch_timeout_ms++; },
  };
  for (const auto& change : changes) {
    MeasurementPolicy other;
    change(other);
    EXPECT_NE(key, kernel_key(workload, target, Mode::kDefault, other));
  }
}

}  // namespace
}  // namespace kiln
