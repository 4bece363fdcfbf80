#include "worker/runner/cpu/bench.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "tests/worker/kernels.h"

namespace kiln::runner {
namespace {

using namespace test;

const Alive kSilent = [] {};

TEST(RotatingBuffers, ExceedTheSecondLevelCacheAndComeRoundAgain) {
  auto workload = WorkloadCase::make(kAddGraph, 1);
  ASSERT_TRUE(workload.has_value());
  auto buffers = RotatingBuffers::make(*workload, 2);
  ASSERT_TRUE(buffers.has_value());
  const long l2 = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
  EXPECT_GT(static_cast<int64_t>(buffers->copies()) * workload->byte_size(), 2 * 2 * l2);
  std::set<void*> seen;
  for (size_t i = 0; i < 2 * buffers->copies(); ++i) {
    const auto args = buffers->next();
    ASSERT_EQ(args.size(), 3u);
    for (void* arg : args) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(arg) % 64, 0u);
      seen.insert(arg);
    }
    EXPECT_EQ(static_cast<float*>(args[0])[7], workload->inputs()[0].as<float>()[7]);
  }
  EXPECT_EQ(seen.size(), 3 * buffers->copies());
}

TEST(RotatingBuffers, AWorkloadBeyondTheCacheNeedsOneCopy) {
  auto workload = WorkloadCase::make(
      "kiln.graph 1\n%0 = input 0 : f32[16000000]\n%1 = neg %0 : f32[16000000]\nreturn %1\n", 1);
  ASSERT_TRUE(workload.has_value());
  auto buffers = RotatingBuffers::make(*workload, 1);
  ASSERT_TRUE(buffers.has_value());
  EXPECT_LE(buffers->copies(), 2u);
}

class BenchTest : public testing::Test {
 protected:
  KernelTimer timer() {
    return KernelTimer::make(kernel_, buffers_, workload_.symbols(), pool_).value();
  }
  WorkloadCase workload_ = WorkloadCase::make(kAddGraph, 1).value();
  ThreadPool pool_{1};
  Kernel kernel_ = Kernel::load(compile_kernel(kRight)).value();
  RotatingBuffers buffers_ = RotatingBuffers::make(workload_, 1).value();
};

TEST_F(BenchTest, ARaceWithoutAnIncumbentTakesAllItsRuns) {
  KernelTimer timed = timer();
  MeasurementPolicy policy;
  policy.race_runs = 7;
  const Raced raced = race(timed, policy, 0, kRaceBudgetUs, kSilent).value();
  EXPECT_FALSE(raced.dropped);
  EXPECT_EQ(raced.measurement.samples_us.size(), 7u);
  for (const double sample : raced.measurement.samples_us) EXPECT_GT(sample, 0);
}

TEST_F(BenchTest, ALostRaceStopsAtTheScreen) {
  KernelTimer timed = timer();
  const Raced raced = race(timed, MeasurementPolicy{}, 1e-9, kRaceBudgetUs, kSilent).value();
  EXPECT_TRUE(raced.dropped);
  EXPECT_EQ(raced.measurement.samples_us.size(), 3u);
}

TEST_F(BenchTest, FinalistsGetEqualRoundsAndALoneOneIsTimedToo) {
  KernelTimer first = timer(), second = timer();
  MeasurementPolicy policy;
  policy.final_runs = 12;
  TimedKernel* both[] = {&first, &second};
  const FinalistsTimed timed = time_finalists(both, policy, kFinalBudgetUs, kSilent).value();
  ASSERT_EQ(timed.measurements.size(), 2u);
  EXPECT_EQ(timed.measurements[0].samples_us.size(), timed.measurements[1].samples_us.size());
  EXPECT_GE(timed.measurements[0].samples_us.size(), 10u);
  const FinalistsTimed alone = time_finalists({both, 1}, policy, kFinalBudgetUs, kSilent).value();
  EXPECT_EQ(alone.measurements[0].samples_us.size(), static_cast<size_t>(policy.screen_runs));
}

}  // namespace
}  // namespace kiln::runner
