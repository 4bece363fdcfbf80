// Verification of a kernel of open sizes on the device.
#include "tests/gpu/gpu_lab.h"
#include "tests/worker/size_mistakes.h"
#include "worker/runner/verify.h"

namespace kiln::runner {
namespace {

class DeviceSizesTest : public test::GpuTest {
 protected:
  Verified verify_mistake(const test::SizeMistake& mistake) {
    const Dim rows = Dim::symbol(0);
    const TensorSpec spec{DType::kF32, {rows, 8}};
    const Artifact artifact = lab_->compile(
        "KILN_KERNEL(8, 1) kernel(float* in, float* out, char*, long s0) {\n"
        "  const long i = block_index() * 8l + thread_index();\n"
        "  [[maybe_unused]] const bool last = i == 0;\n" +
            mistake.before + "  if (i < s0 * 8) out[i] = in[i] * in[i];\n" + mistake.after +
            "\n}\n",
        {{spec}, {spec}, {{"kernel", Grid(rows), 8, 1, 0}}, 0, 0});
    const auto kernel = lab_->device()->load(artifact);
    EXPECT_TRUE(kernel) << (kernel ? "" : kernel.error().message);
    auto workload = PreparedWorkload::make(device(), test::kSquares, 3);
    EXPECT_TRUE(workload) << (workload ? "" : workload.error().message);
    if (!kernel || !workload) return {Verdict::kRunnerDied, "not verified"};
    bool intact = true;
    auto verified = verify(
        **kernel, device(), *workload, [] {}, intact);
    EXPECT_TRUE(verified) << (verified ? "" : verified.error().message);
    EXPECT_TRUE(intact);
    return verified ? *std::move(verified) : Verified{Verdict::kRunnerDied, "not verified"};
  }
};

TEST_F(DeviceSizesTest, ASizeAtWhichAKernelIsWrongIsFound) {
  for (const test::SizeMistake& mistake : test::kSizeMistakes) {
    SCOPED_TRACE(mistake.name);
    const Verified verified = verify_mistake(mistake);
    EXPECT_EQ(verified.verdict, mistake.verdict) << verified.log;
    EXPECT_TRUE(verified.log.starts_with(mistake.log)) << verified.log;
  }
}

TEST_F(DeviceSizesTest, TheCaseIsMadeAtTheEndsOfItsRangeToo) {
  auto workload = PreparedWorkload::make(device(), test::kSquares, 3);
  ASSERT_TRUE(workload) << workload.error().message;
  EXPECT_EQ(workload->symbols(), test::kMeasuredRows);
  EXPECT_EQ(test::rows_of(workload->others()), test::kOtherRows);
}

}  // namespace
}  // namespace kiln::runner
