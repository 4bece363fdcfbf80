#include "worker/runner/kernel_timer.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/worker/kernels.h"
#include "tests/worker/prepared.h"

namespace kiln::runner {
namespace {

using namespace test;

const Alive kNoSign = [] {};

TEST(RotatingBuffers, ExceedTheSecondLevelCacheAndComeRoundAgain) {
  PreparedOnCpu prepared(kAddGraph);
  auto buffers = RotatingBuffers::make(prepared.device(), prepared.workload());
  ASSERT_TRUE(buffers.has_value());
  EXPECT_GT(static_cast<int64_t>(buffers->copies()) * prepared.workload().byte_size(),
            2 * prepared.device().device().cache_bytes());
  std::set<DevicePtr> seen;
  for (size_t i = 0; i < 2 * buffers->copies(); ++i) {
    const auto args = buffers->next();
    ASSERT_EQ(args.size(), 3u);
    for (const DevicePtr arg : args) {
      EXPECT_EQ(arg % 64, 0u);
      seen.insert(arg);
    }
    EXPECT_EQ(reinterpret_cast<float*>(args[0])[7], prepared.inputs()[0].as<float>()[7]);
  }
  EXPECT_EQ(seen.size(), 3 * buffers->copies());
}

TEST(RotatingBuffers, AWorkloadBeyondTheCacheNeedsOneCopy) {
  PreparedOnCpu prepared(
      "kiln.graph 1\n%0 = input 0 : f32[16000000]\n%1 = neg %0 : f32[16000000]\nreturn %1\n");
  auto buffers = RotatingBuffers::make(prepared.device(), prepared.workload());
  ASSERT_TRUE(buffers.has_value());
  EXPECT_LE(buffers->copies(), 2u);
}

class KernelTimerTest : public ::testing::Test {
 protected:
  std::unique_ptr<KernelTimer> timer() {
    return KernelTimer::make(*kernel_, device_, buffers_, prepared_.workload().symbols()).value();
  }
  PreparedOnCpu prepared_{kAddGraph};
  EvaluationDevice& device_ = prepared_.device();
  std::unique_ptr<const LoadedKernel> kernel_ =
      device_.device().load(compile_kernel(kRight)).value();
  RotatingBuffers buffers_ = RotatingBuffers::make(device_, prepared_.workload()).value();
};

TEST_F(KernelTimerTest, ARaceWithoutAnIncumbentTakesAllItsRuns) {
  const auto timed = timer();
  MeasurementPolicy policy;
  policy.race_runs = 7;
  const Raced raced = race_kernel(device_, *timed, policy, 0, kNoSign).value();
  EXPECT_FALSE(raced.dropped);
  EXPECT_EQ(raced.measurement.samples_us.size(), 7u);
  for (const double sample : raced.measurement.samples_us) EXPECT_GT(sample, 0);
}

TEST_F(KernelTimerTest, ALostRaceStopsAtTheScreen) {
  const auto timed = timer();
  const Raced raced = race_kernel(device_, *timed, MeasurementPolicy{}, 1e-9, kNoSign).value();
  EXPECT_TRUE(raced.dropped);
  EXPECT_EQ(raced.measurement.samples_us.size(), 3u);
}

TEST_F(KernelTimerTest, FinalistsGetEqualRoundsAndALoneOneIsTimedToo) {
  const auto first = timer(), second = timer();
  MeasurementPolicy policy;
  policy.final_runs = 12;
  KernelTimer* both[] = {first.get(), second.get()};
  const FinalistsTimed timed = time_kernels(device_, both, policy, kNoSign).value();
  ASSERT_EQ(timed.measurements.size(), 2u);
  EXPECT_EQ(timed.measurements[0].samples_us.size(), timed.measurements[1].samples_us.size());
  EXPECT_GE(timed.measurements[0].samples_us.size(), 10u);
  const FinalistsTimed alone = time_kernels(device_, {both, 1}, policy, kNoSign).value();
  EXPECT_EQ(alone.measurements[0].samples_us.size(), static_cast<size_t>(policy.screen_runs));
}

}  // namespace
}  // namespace kiln::runner
