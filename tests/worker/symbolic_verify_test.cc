// A kernel that is right only at the sizes it was measured at is wrong.
#include <gtest/gtest.h>

#include "tests/worker/kernels.h"
#include "worker/verify.h"

namespace kiln::runner {
namespace {

constexpr char kSquares[] =
    "kiln.graph 1\n"
    "s0 = symbol 0..4096 hint 24\n"
    "%0 = input 0 : f32[s0,8]\n"
    "%1 = mul %0 %0 : f32[s0,8]\n"
    "return %1\n";

// A kernel whose body sees `s0`, `in`, `out` and the block's rows [begin, end).
Verified verify_body(const std::string& body) {
  const Dim rows = Dim::symbol(0);
  const TensorSpec spec{DType::kF32, {rows, 8}};
  const Source source{
      "extern \"C\" void kernel(void* const* args, const long* dims, long begin, long end,"
      " void*, void*) {\n"
      "  [[maybe_unused]] const long s0 = dims[0];\n"
      "  const float* in = (float*)args[0];\n  float* out = (float*)args[1];\n" +
          body + "\n}\n",
      {{spec}, {spec}, {{"kernel", Grid(rows)}}, 0, 0}};
  auto artifact = test::compiler().compile(source, host_cpu_target(), 60'000);
  EXPECT_TRUE(artifact) << (artifact ? "" : artifact.error().message);
  const auto kernel = Kernel::load(*artifact);
  EXPECT_TRUE(kernel);
  auto workload = WorkloadCase::make(kSquares, 3);
  EXPECT_TRUE(workload);
  ThreadPool pool(1);
  auto verified = verify(*kernel, *workload, pool, [] {});
  EXPECT_TRUE(verified) << (verified ? "" : verified.error().message);
  return verified ? *std::move(verified) : Verified{Verdict::kRunnerDied, "not verified"};
}

constexpr char kRight[] = "for (long i = begin * 8; i < end * 8; ++i) out[i] = in[i] * in[i];";

TEST(SymbolicVerify, RightAtEverySizeIsRight) {
  const Verified verified = verify_body(kRight);
  EXPECT_EQ(verified.verdict, Verdict::kOk) << verified.log;
}

TEST(SymbolicVerify, RightAtTheMeasuredSizeOnlyIsWrong) {
  const Verified verified = verify_body(std::string("if (s0 == 24) ") + kRight);
  EXPECT_EQ(verified.verdict, Verdict::kWrongResult);
  EXPECT_EQ(verified.log.substr(0, 11), "at sizes 1:") << verified.log;
}

TEST(SymbolicVerify, WrongAboveTheMeasuredSizeIsWrong) {
  const Verified verified = verify_body(std::string("if (s0 < 26) ") + kRight);
  EXPECT_EQ(verified.verdict, Verdict::kWrongResult);
  EXPECT_EQ(verified.log.substr(0, 12), "at sizes 51:") << verified.log;
}

TEST(SymbolicVerify, WritingPastTheEndAtOddSizesIsOutOfBounds) {
  const Verified verified =
      verify_body(std::string(kRight) + "\nif (end == s0 && s0 % 8) out[s0 * 8] = 1;");
  EXPECT_EQ(verified.verdict, Verdict::kOutOfBounds) << verified.log;
}

TEST(SymbolicVerify, WorkloadsAreCheckedAtTheEndsOfTheirRangeToo) {
  auto workload = WorkloadCase::make(kSquares, 3);
  ASSERT_TRUE(workload);
  EXPECT_EQ(workload->symbols(), (std::vector<int64_t>{24}));
  std::vector<int64_t> sizes;
  for (const WorkloadCase& other : workload->others()) sizes.push_back(other.symbols()[0]);
  EXPECT_EQ(sizes, (std::vector<int64_t>{0, 1, 25, 23, 51}));
}

}  // namespace
}  // namespace kiln::runner
