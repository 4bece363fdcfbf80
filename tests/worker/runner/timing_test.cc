#include "worker/runner/timing.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace kiln::runner {
namespace {

const Alive kSilent = [] {};

// Answers the same time again and again, and is lost after so many samples.
class ScriptedKernel : public TimedKernel {
 public:
  explicit ScriptedKernel(double us, int lost_after = 1 << 20) : us_(us), left_(lost_after) {}
  Status warm_up(const Alive&) override {
    ++warm_ups;
    return {};
  }
  Result<double> sample_us(const Alive&) override {
    if (left_-- == 0) return fail(Code::kUnavailable, "the device is lost");
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return us_;
  }
  int warm_ups = 0;
  bool slow = false;

 private:
  double us_;
  int left_;
};

TEST(Timing, ARaceEndsAsThePolicySays) {
  ScriptedKernel kernel(10);
  const MeasurementPolicy policy;
  EXPECT_EQ(race(kernel, policy, 0, 1e9, kSilent)->measurement.samples_us.size(), 20u);
  const auto lost = race(kernel, policy, 4, 1e9, kSilent);
  EXPECT_TRUE(lost->dropped);
  EXPECT_EQ(lost->measurement.samples_us.size(), 3u);
  EXPECT_EQ(kernel.warm_ups, 2);
}

TEST(Timing, ASpentBudgetDecidesWithWhatThereIsButNeverWithLessThanTheScreen) {
  ScriptedKernel kernel(10);
  kernel.slow = true;
  const auto raced = race(kernel, MeasurementPolicy{}, 0, 1, kSilent);
  EXPECT_FALSE(raced->dropped);
  EXPECT_EQ(raced->measurement.samples_us.size(), 3u);
  ScriptedKernel other(12);
  TimedKernel* both[] = {&kernel, &other};
  const auto finals = time_finalists(both, MeasurementPolicy{}, 1, kSilent);
  EXPECT_EQ(finals->measurements[0].samples_us.size(), 3u);
  EXPECT_EQ(finals->measurements[1].samples_us.size(), 3u);
}

TEST(Timing, ALostDeviceEndsIt) {
  ScriptedKernel kernel(10, 5);
  EXPECT_EQ(race(kernel, MeasurementPolicy{}, 0, 1e9, kSilent).error().code, Code::kUnavailable);
  ScriptedKernel lost(10, 2), well(10);
  TimedKernel* both[] = {&well, &lost};
  EXPECT_FALSE(time_finalists(both, MeasurementPolicy{}, 1e9, kSilent).has_value());
}

}  // namespace
}  // namespace kiln::runner
