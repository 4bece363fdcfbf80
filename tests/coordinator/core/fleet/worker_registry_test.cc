#include "coordinator/core/fleet/worker_registry.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

class Registry : public ::testing::Test {
 protected:
  void report(const WorkerId& id, double sentinel_us, int device_errors = 0, int64_t compiled = 0) {
    WorkerReport report;
    report.worker = id;
    report.target = target_;
    report.sentinel_us = sentinel_us;
    report.device_errors = device_errors;
    report.compiled = compiled;
    registry_.report(now_ms_ += 1'000, id, report);
  }
  void read(const WorkerId& id, std::initializer_list<double> calibrations_us) {
    for (const double us : calibrations_us) report(id, us);
  }
  bool quarantined(const WorkerId& id) { return registry_.find(id)->quarantined; }

  CoreOptions options_;
  WorkerRegistry registry_{options_};
  Target target_{Backend::kCpu, "x86-64-v3", "", 0, {}};
  int64_t now_ms_ = 0;
};

TEST_F(Registry, ADeviceThatFailedIsKnownWhenItsWorkerComesBack) {
  report("w", 0, 0);
  report("w", 0, 1);
  ASSERT_TRUE(quarantined("w"));
  registry_.remove("w");
  report("w", 0, 1);
  EXPECT_TRUE(quarantined("w"));
  EXPECT_FALSE(registry_.serves(target_));
  registry_.tick(now_ms_ + options_.quarantine_ms);
  EXPECT_FALSE(quarantined("w"));
}

TEST_F(Registry, AFaultThatTookTheConnectionWithItCounts) {
  report("w", 0, 0);
  registry_.remove("w");
  report("w", 0, 1);
  EXPECT_TRUE(quarantined("w"));
}

TEST_F(Registry, ADriftIsNotTheBaselineOfWhoComesBack) {
  report("other", 0);
  read("w", {100, 101, 99, 100.5, 100, 150, 151, 152});
  ASSERT_TRUE(quarantined("w"));
  registry_.remove("w");
  read("w", {150.5, 151.5, 150.2, 150.8, 151.2});
  EXPECT_TRUE(quarantined("w"));
  EXPECT_EQ(registry_.find("w")->health.baseline_us(), 100);
}

TEST_F(Registry, AWorkerStartedAnewUnderItsNameIsJudgedAnew) {
  report("w", 0, 0, 5);
  report("w", 0, 1, 6);
  registry_.remove("w");
  report("w", 0, 0, 0);
  EXPECT_FALSE(quarantined("w"));
}

TEST_F(Registry, AWorkerThatIsEverAnotherDeviceIsRememberedWithinBounds) {
  const auto nth = [](int i) {
    return Target{Backend::kCpu, "isa " + std::to_string(i), "", 0, {}};
  };
  for (int i = 0; i < 6'000; ++i) {
    target_ = nth(i);
    for (int reading = 0; reading < 2; ++reading) report("w", 100 + reading);
  }
  EXPECT_LE(registry_.classes().size(), 1'024u);
  EXPECT_TRUE(registry_.serves(nth(5'999)));
  EXPECT_GT(registry_.reference_us(nth(3)), 0);
  EXPECT_EQ(registry_.reference_us(nth(5'999)), 0) << "compared as it is";
}

}  // namespace
}  // namespace kiln
