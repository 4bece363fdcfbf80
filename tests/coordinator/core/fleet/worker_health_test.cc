#include "coordinator/core/fleet/worker_health.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

class Health : public ::testing::Test {
 protected:
  void read(std::initializer_list<double> calibrations_us) {
    for (const double us : calibrations_us) health_.saw(now_ms_ += 1'000, us, errors_, options_);
  }
  CoreOptions options_;
  WorkerHealth health_;
  int64_t now_ms_ = 0;
  int errors_ = 0;
};

TEST_F(Health, ThreeReadingsOffItsBaselineAreADrift) {
  read({100, 101, 99, 100.5, 100});
  read({140, 100.1, 141, 142});
  EXPECT_FALSE(health_.drifts()) << "two in a row may be chance";
  read({143});
  EXPECT_TRUE(health_.drifts());
  EXPECT_NE(health_.reason().find("sentinel drifted by +43 %"), std::string::npos)
      << health_.reason();
}

TEST_F(Health, AReadingThatIsReportedAgainIsNoneOfItsOwn) {
  read({100, 101, 99, 100.5, 100, 150, 150, 150, 150});
  EXPECT_FALSE(health_.drifts());
}

TEST_F(Health, DriftEndsWithGoodReadingsAndTime) {
  read({100, 101, 99, 100.5, 100, 150, 151, 152});
  ASSERT_TRUE(health_.drifts());
  const int64_t bad_ms = now_ms_;
  read({100.1, 100.2, 100.3});
  EXPECT_TRUE(health_.drifts()) << "for a while";
  health_.review(bad_ms + options_.quarantine_ms, options_);
  EXPECT_FALSE(health_.drifts());
  EXPECT_EQ(health_.reason(), "");
}

TEST_F(Health, TimeAloneEndsNoDrift) {
  read({100, 101, 99, 100.5, 100, 150, 151, 152});
  health_.review(now_ms_ + 10 * options_.quarantine_ms, options_);
  EXPECT_TRUE(health_.drifts());
}

TEST_F(Health, ABaselineTakenWhileItWasSlowIsTakenAnew) {
  options_.quarantine_ms = 8'000;
  read({150, 151, 149, 150.5, 150});
  read({100, 100.1, 100.2});
  ASSERT_TRUE(health_.drifts());
  read({100.3, 100.4, 100.5, 100.6, 100.7});
  EXPECT_TRUE(health_.drifts()) << "for a while";
  read({100.8, 100.9});
  EXPECT_FALSE(health_.drifts());
  EXPECT_EQ(health_.baseline_us(), 100.6);
  EXPECT_EQ(health_.reason(), "");
  read({150.1, 150.2, 150.3});
  EXPECT_TRUE(health_.drifts()) << "that is slow again";
}

TEST_F(Health, ADeviceThatStaysSlowerOrIsUnsteadyKeepsItsBaseline) {
  options_.quarantine_ms = 2'000;
  read({100, 101, 99, 100.5, 100});
  for (int i = 0; i < 20; ++i) read({150 + 0.1 * i});
  EXPECT_TRUE(health_.drifts());
  for (int i = 0; i < 20; ++i) read({i % 2 == 0 ? 70 + 0.1 * i : 40 + 0.1 * i});
  EXPECT_TRUE(health_.drifts());
  EXPECT_EQ(health_.baseline_us(), 100);
}

TEST_F(Health, DeviceFaultsCountFromTheFirstReportOn) {
  errors_ = 7;
  read({0});
  EXPECT_FALSE(health_.errs()) << "what was before this coordinator";
  errors_ = 8;
  read({0});
  EXPECT_TRUE(health_.errs());
  health_.review(now_ms_ + options_.quarantine_ms - 1, options_);
  EXPECT_TRUE(health_.errs());
  health_.review(now_ms_ + options_.quarantine_ms, options_);
  EXPECT_FALSE(health_.errs());
}

}  // namespace
}  // namespace kiln
