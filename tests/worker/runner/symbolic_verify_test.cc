// Verification of a kernel with dynamic shapes on the CPU.
#include <gtest/gtest.h>

#include "tests/worker/kernels.h"
#include "tests/worker/size_mistakes.h"
#include "worker/runner/verify.h"

namespace kiln::runner {
namespace {

Verified verify_mistake(const test::SizeMistake& mistake) {
  const Dim rows = Dim::symbol(0);
  const TensorSpec spec{DType::kF32, {rows, 8}};
  const Source source{
      "extern \"C\" void kernel(void* const* args, const long* dims, long begin, long end,"
      " void*, void*) {\n"
      "  [[maybe_unused]] const long s0 = dims[0];\n"
      "  const float* in = (float*)args[0];\n  float* out = (float*)args[1];\n"
      "  [[maybe_unused]] const bool last = end == s0;\n" +
          mistake.before +
          "  for (long i = begin * 8; i < end * 8; ++i) out[i] = in[i] * in[i];\n" + mistake.after +
          "\n}\n",
      {{spec}, {spec}, {{"kernel", Grid(rows)}}, 0, 0}};
  auto artifact = test::compiler().compile(source, host_cpu_target(), 60'000);
  EXPECT_TRUE(artifact) << (artifact ? "" : artifact.error().message);
  const auto device = make_cpu_evaluation_device(1);
  const auto kernel = device->device().load(*artifact);
  EXPECT_TRUE(kernel);
  auto workload = PreparedWorkload::make(*device, test::kSquares, 3);
  EXPECT_TRUE(workload);
  bool intact = true;
  auto verified = verify(
      **kernel, *device, *workload, [] {}, intact);
  EXPECT_TRUE(intact);
  EXPECT_TRUE(verified) << (verified ? "" : verified.error().message);
  return verified ? *std::move(verified) : Verified{Verdict::kRunnerDied, "not verified"};
}

TEST(SymbolicVerify, ASizeAtWhichAKernelIsWrongIsFound) {
  for (const test::SizeMistake& mistake : test::kSizeMistakes) {
    SCOPED_TRACE(mistake.name);
    const Verified verified = verify_mistake(mistake);
    EXPECT_EQ(verified.verdict, mistake.verdict) << verified.log;
    EXPECT_TRUE(verified.log.starts_with(mistake.log)) << verified.log;
  }
}

TEST(SymbolicVerify, WorkloadsAreCheckedAtTheEndsOfTheirRangeToo) {
  const auto device = make_cpu_evaluation_device(1);
  auto workload = PreparedWorkload::make(*device, test::kSquares, 3);
  ASSERT_TRUE(workload);
  EXPECT_EQ(workload->symbols(), test::kMeasuredRows);
  EXPECT_EQ(test::rows_of(workload->others()), test::kOtherRows);
}

}  // namespace
}  // namespace kiln::runner
