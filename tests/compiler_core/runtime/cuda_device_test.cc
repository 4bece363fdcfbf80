#include "compiler_core/runtime/cuda_device.h"

#include "tests/compiler_core/runtime/fake_gpu.h"

namespace kiln {
namespace {

TEST(CudaFacts, TheTargetNamesTheArchitectureTheCardAndTheDriversMajor) {
  CudaFacts facts;
  facts.name = "A Card";
  facts.capability = 90;
  facts.sms = 132;
  facts.driver = 13010;
  const Target target = facts.target();
  EXPECT_EQ(target.to_string(), "cuda:sm_90a");
  EXPECT_EQ(target.device_model, "A Card");
  EXPECT_EQ(target.units, 132);
  EXPECT_EQ(target.toolkit, "cuda-13");
  facts.capability = 80;
  EXPECT_EQ(facts.target().to_string(), "cuda:sm_80");
}

TEST(CudaDevice, WithoutADriverItSaysSoAndNothingElseHappens) {
  const auto opened = CudaDevice::open(0, "/nonexistent/libcuda.so.1");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::kUnsupported);
  const auto probed = CudaDevice::probe(0, "/nonexistent/libcuda.so.1");
  ASSERT_FALSE(probed);
  EXPECT_EQ(probed.error().message, opened.error().message);
}

TEST(CudaDevice, ALibraryThatLacksAFunctionIsTooOld) {
  if (!kHaveFakeGpu) GTEST_SKIP() << "built without the CUDA toolkit's headers";
  const auto opened = CudaDevice::open(0, "libm.so.6");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::kUnsupported);
  EXPECT_NE(opened.error().message.find("cuInit"), std::string::npos) << opened.error().message;
}

class CudaDeviceTest : public FakeGpuTest {};

TEST_F(CudaDeviceTest, ProbingGivesTheFactsOfTheOpenDevice) {
  const auto facts = CudaDevice::probe(0, kFakeLibcuda);
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_FALSE(facts->name.empty());
  EXPECT_FALSE(facts->bus_id.empty());
  EXPECT_EQ(facts->capability, 90);
  EXPECT_GT(facts->sms, 0);
  EXPECT_GE(facts->driver, 12000);
  EXPECT_GT(facts->l2_bytes, 0);
  EXPECT_GT(facts->memory_bytes, facts->l2_bytes);
  EXPECT_GT(facts->max_shared_bytes, 48 << 10);
  EXPECT_EQ(facts->bus_id, gpu_->facts().bus_id);
  EXPECT_EQ(facts->target(), gpu_->facts().target());
}

TEST_F(CudaDeviceTest, ThereIsNoSecondGpu) {
  const auto second = CudaDevice::open(1, kFakeLibcuda);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kNotFound);
}

TEST_F(CudaDeviceTest, BytesTravelThereAcrossAndBack) {
  const DeviceBuffer a = upload(ramp(1)), b = memory(a.bytes());
  EXPECT_EQ(a.data() % 256, 0u);
  ASSERT_TRUE(gpu_->fill(b.data(), 0, b.bytes(), nullptr));
  ASSERT_TRUE(gpu_->copy_on_device(b.data(), a.data(), a.bytes() / 2, nullptr));
  ASSERT_TRUE(gpu_->synchronize(nullptr));
  const std::vector<float> values = download(b);
  EXPECT_EQ(values[31], 31);
  EXPECT_EQ(values[32], 0);
}

TEST_F(CudaDeviceTest, AStreamIsDoneWhenItsWorkIs) {
  const auto stream = gpu_->create_stream();
  ASSERT_TRUE(stream) << stream.error().message;
  const DeviceBuffer a = memory(1 << 10);
  ASSERT_TRUE(gpu_->fill(a.data(), 1, a.bytes(), *stream));
  ASSERT_TRUE(gpu_->synchronize(*stream));
  const auto done = gpu_->is_done(*stream);
  EXPECT_TRUE(done && *done);
  gpu_->destroy_stream(*stream);
}

TEST_F(CudaDeviceTest, NoMemoryIsAnErrorWithTheDriversWordsAndNoFault) {
  const auto refused = gpu_->allocate(int64_t{1} << 44);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnavailable);
  EXPECT_NE(refused.error().message.find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos)
      << refused.error().message;
  EXPECT_FALSE(gpu_->is_lost());
  EXPECT_TRUE(gpu_->synchronize(nullptr));
}

TEST_F(CudaDeviceTest, ABufferWithoutBytesHasNoMemory) {
  EXPECT_EQ(memory(0).data(), 0u);
  DeviceBuffer a = memory(16);
  const DevicePtr where = a.data();
  DeviceBuffer b = std::move(a);
  EXPECT_EQ(b.data(), where);
  b = memory(32);
  EXPECT_EQ(b.bytes(), 32);
}

}  // namespace
}  // namespace kiln
