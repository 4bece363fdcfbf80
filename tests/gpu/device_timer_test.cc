// Timing on the device: what is launched over which memory, and how races and finals end.
#include "worker/runner/kernel_timer.h"

#include <set>

#include "tests/gpu/gpu_lab.h"

namespace kiln::runner {
namespace {

const Alive kSilent = [] {};

constexpr char kNegGraph[] =
    "kiln.graph 1\n%0 = input 0 : f32[1000]\n%1 = neg %0 : f32[1000]\nreturn %1\n";
constexpr char kNegKernel[] =
    "KILN_KERNEL(256, 1) kernel(float* x, float* out, char*) {\n"
    "  const long i = block_index() * 256l + thread_index();\n"
    "  if (i < 1000) out[i] = -x[i];\n"
    "}\n";

class MemoryPoolTest : public test::GpuTest {};

TEST_F(MemoryPoolTest, PooledMemoryIsUsedAgainAndTrimmed) {
  MemoryPool pool(lab_->device());
  auto first = pool.allocate(1'000'000);
  ASSERT_TRUE(first.has_value());
  const DevicePtr data = first->data();
  EXPECT_GE(first->bytes(), 1'000'000);
  *first = {};
  EXPECT_GE(pool.free_bytes(), 1'000'000);
  auto again = pool.allocate(990'000);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->data(), data);
  EXPECT_EQ(pool.free_bytes(), 0);
  auto small = pool.allocate(10);
  ASSERT_TRUE(small.has_value());
  EXPECT_NE(small->data(), data);
  *again = {};
  pool.trim(0);
  EXPECT_EQ(pool.free_bytes(), 0);
  EXPECT_EQ(pool.allocate(int64_t{1} << 60).error().code, Code::kUnavailable);
}

class DeviceTimerTest : public test::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFailure()) return;
    const TensorSpec spec{DType::kF32, {1000}};
    const Artifact artifact =
        lab_->compile(kNegKernel, {{spec}, {spec}, {{"kernel", 4, 256, 1, 0}}, 0, 0});
    kernel_ = lab_->device()->load(artifact).value();
    workload_.emplace(PreparedWorkload::make(device(), kNegGraph, 7).value());
    copies_.emplace(RotatingBuffers::make(device(), *workload_).value());
  }
  std::unique_ptr<KernelTimer> timer() {
    return KernelTimer::make(*kernel_, device(), *copies_, workload_->symbols()).value();
  }

  std::unique_ptr<const LoadedKernel> kernel_;
  std::optional<PreparedWorkload> workload_;
  std::optional<RotatingBuffers> copies_;
};

TEST_F(DeviceTimerTest, CopiesAreManyAlignedDistinctAndAlike) {
  EXPECT_GT(copies_->copies(), 1u);
  const auto read = [&](DevicePtr from) {
    std::vector<uint8_t> bytes(4000);
    EXPECT_TRUE(device().synchronize());
    EXPECT_TRUE(lab_->device()->copy_to_host(bytes, from));
    return bytes;
  };
  const std::vector<uint8_t> drawn = read(workload_->inputs()[0].data);
  std::set<DevicePtr> seen;
  for (size_t i = 0; i < 2 * copies_->copies(); ++i) {
    const auto args = copies_->next();
    ASSERT_EQ(args.size(), 2u);
    for (const DevicePtr arg : args) {
      EXPECT_EQ(arg % 256, 0u);
      seen.insert(arg);
    }
    if (i % 61 == 0) {
      EXPECT_EQ(read(args[0]), drawn) << "copy " << i;
    }
  }
  EXPECT_EQ(seen.size(), 2 * copies_->copies());
  // Either beyond three times the L2 or as many as there may be.
  const int64_t bytes = static_cast<int64_t>(copies_->copies()) * workload_->byte_size();
  EXPECT_TRUE(bytes > 2 * lab_->device()->facts().l2_bytes || copies_->copies() == 16384) << bytes;
}

// On a busy machine a warm-up may look long: of several one does not.
TEST_F(DeviceTimerTest, ASampleOfAShortKernelIsManyLaunches) {
  bool many = false, any_short = false;
  for (int attempt = 0; attempt < 20 && !many; ++attempt) {
    const auto timed = timer();
    ASSERT_TRUE(timed->warm_up(kSilent));
    const auto us = timed->sample_us(kSilent);
    ASSERT_TRUE(us.has_value()) << us.error().message;
    EXPECT_GT(*us, 0);
    any_short = any_short || *us < 50;
    many = timed->launches_per_sample() > 1;
  }
  EXPECT_TRUE(many || !any_short);
}

TEST_F(DeviceTimerTest, ALostRaceStopsAtTheScreenAndOneWithoutAnIncumbentGoesOn) {
  const auto timed = timer();
  MeasurementPolicy policy;
  policy.race_runs = 7;
  const auto lost = race_kernel(device(), *timed, policy, 1e-9, kSilent);
  ASSERT_TRUE(lost.has_value()) << lost.error().message;
  EXPECT_TRUE(lost->dropped);
  EXPECT_EQ(lost->measurement.samples_us.size(), 3u);
  const auto won = race_kernel(device(), *timed, policy, 0, kSilent);
  ASSERT_TRUE(won.has_value());
  EXPECT_FALSE(won->dropped);
  EXPECT_GE(won->measurement.samples_us.size(), 3u);
  EXPECT_LE(won->measurement.samples_us.size(), 7u);
}

TEST_F(DeviceTimerTest, FinalistsGetEqualRounds) {
  const auto first = timer(), second = timer();
  MeasurementPolicy policy;
  policy.final_runs = 12;
  KernelTimer* both[] = {first.get(), second.get()};
  const auto timed = time_kernels(device(), both, policy, kSilent);
  ASSERT_TRUE(timed.has_value()) << timed.error().message;
  ASSERT_EQ(timed->measurements.size(), 2u);
  EXPECT_EQ(timed->measurements[0].samples_us.size(), timed->measurements[1].samples_us.size());
  EXPECT_GE(timed->measurements[0].samples_us.size(), 3u);
}

}  // namespace
}  // namespace kiln::runner
