// A kernel that is right only at the sizes it was measured at is wrong: on the device too.
#include "tests/gpu/gpu_lab.h"
#include "worker/device_verify.h"

namespace kiln::runner {
namespace {

constexpr char kSquares[] =
    "kiln.graph 1\n"
    "s0 = symbol 0..4096 hint 24\n"
    "%0 = input 0 : f32[s0,8]\n"
    "%1 = mul %0 %0 : f32[s0,8]\n"
    "return %1\n";

class DeviceSizesTest : public test::GpuTest {
 protected:
  // A kernel of one thread an element, `i` of `n`, which sees `rows`, `in` and `out`.
  Verified verify_body(const std::string& body) {
    const Dim rows = Dim::symbol(0);
    const TensorSpec spec{DType::kF32, {rows, 8}};
    const Artifact artifact = lab_->compile(
        "KILN_KERNEL(8, 1) kernel(float* in, float* out, char*, long rows) {\n"
        "  const long i = block_index() * 8l + thread_index(), n = rows * 8;\n" +
            body + "\n}\n",
        {{spec}, {spec}, {{"kernel", Grid(rows), 8, 1, 0}}, 0, 0});
    const auto kernel = CudaKernel::load(lab_->device(), artifact);
    EXPECT_TRUE(kernel) << (kernel ? "" : kernel.error().message);
    auto workload = DeviceCase::make(instruments(), kSquares, 3);
    EXPECT_TRUE(workload) << (workload ? "" : workload.error().message);
    if (!kernel || !workload) return {Verdict::kRunnerDied, "not verified"};
    bool intact = true;
    auto verified = verify(
        *kernel, instruments(), *workload, [] {}, intact);
    EXPECT_TRUE(verified) << (verified ? "" : verified.error().message);
    EXPECT_TRUE(intact);
    return verified ? *std::move(verified) : Verified{Verdict::kRunnerDied, "not verified"};
  }
};

constexpr char kRight[] = "if (i < n) out[i] = in[i] * in[i];";

TEST_F(DeviceSizesTest, RightAtEverySizeIsRight) {
  const Verified verified = verify_body(kRight);
  EXPECT_EQ(verified.verdict, Verdict::kOk) << verified.log;
}

TEST_F(DeviceSizesTest, RightAtTheMeasuredSizeOnlyIsWrong) {
  const Verified verified = verify_body(std::string("if (rows == 24) ") + kRight);
  EXPECT_EQ(verified.verdict, Verdict::kWrongResult);
  EXPECT_EQ(verified.log.substr(0, 11), "at sizes 1:") << verified.log;
}

TEST_F(DeviceSizesTest, WrongAboveTheMeasuredSizeIsWrong) {
  const Verified verified = verify_body(std::string("if (rows < 26) ") + kRight);
  EXPECT_EQ(verified.verdict, Verdict::kWrongResult);
  EXPECT_EQ(verified.log.substr(0, 12), "at sizes 51:") << verified.log;
}

TEST_F(DeviceSizesTest, WritingPastTheEndAtOddSizesIsOutOfBounds) {
  const Verified verified =
      verify_body(std::string(kRight) + "\n  if (i == 0 && rows % 8) out[n] = 1;");
  EXPECT_EQ(verified.verdict, Verdict::kOutOfBounds) << verified.log;
  EXPECT_EQ(verified.log.substr(0, 9), "at sizes ") << verified.log;
}

TEST_F(DeviceSizesTest, TheCaseIsMadeAtTheEndsOfItsRangeToo) {
  auto workload = DeviceCase::make(instruments(), kSquares, 3);
  ASSERT_TRUE(workload) << workload.error().message;
  EXPECT_EQ(workload->symbols(), (std::vector<int64_t>{24}));
  std::vector<int64_t> sizes;
  for (const DeviceCase& other : workload->others()) sizes.push_back(other.symbols()[0]);
  EXPECT_EQ(sizes, (std::vector<int64_t>{0, 1, 25, 23, 51}));
}

}  // namespace
}  // namespace kiln::runner
