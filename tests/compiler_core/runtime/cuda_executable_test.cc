#include "compiler_core/runtime/cuda_executable.h"

#include "tests/compiler_core/runtime/fake_gpu.h"

namespace kiln {
namespace {

// in0 f32[64] -> t (times 2) -> out0 (times 3); out1 is out0, out2 is in0.
class CudaExecutableTest : public FakeGpuTest {
 protected:
  void SetUp() override {
    FakeGpuTest::SetUp();
    if (gpu_ == nullptr) return;
    artifacts_ = {scale_artifact("2"), scale_artifact("3")};
    for (const Artifact& artifact : artifacts_) {
      ProgramKernel kernel;
      kernel.blob = artifact.digest;
      kernel.recipe = artifact.recipe;
      program_.kernels.push_back(kernel);
    }
    const TensorSpec spec = artifacts_[0].recipe.inputs[0];
    program_.buffers = {{Buffer::Kind::kInput, 0, spec, Dim(0)},
                        {Buffer::Kind::kTemporary, 0, spec, Dim(64)},
                        {Buffer::Kind::kOutput, 0, spec, Dim(0)}};
    program_.launches = {{0, {0, 1}}, {1, {1, 2}}};
    program_.output_buffers = {2, 2, 0};
    program_.arena_bytes = Dim(64 + 256);
  }
  CudaExecutable load(bool reduce_overhead) const {
    auto loaded = CudaExecutable::load(gpu_, program_, artifacts_, {reduce_overhead});
    EXPECT_TRUE(loaded) << loaded.error().message;
    return *std::move(loaded);
  }
  Code load_error() const {
    const auto loaded = CudaExecutable::load(gpu_, program_, artifacts_, {});
    EXPECT_FALSE(loaded);
    return loaded ? Code::kInternal : loaded.error().code;
  }

  std::vector<Artifact> artifacts_;
  Program program_;
};

TEST_F(CudaExecutableTest, LaunchesInOrderAndFillsSharedOutputsOnAnyStream) {
  const auto own = gpu_->create_stream();
  ASSERT_TRUE(own);
  for (const bool reduce_overhead : {false, true}) {
    const CudaExecutable executable = load(reduce_overhead);
    for (CudaStream stream : {CudaStream{nullptr}, *own}) {
      const DeviceBuffer in = upload(ramp(1)), a = memory(256), b = memory(256), c = memory(256);
      const DevicePtr inputs[] = {in.data()}, outputs[] = {a.data(), b.data(), c.data()};
      const Status launched = executable.launch(inputs, outputs, stream);
      ASSERT_TRUE(launched) << launched.error().message;
      ASSERT_TRUE(gpu_->synchronize(stream));
      EXPECT_EQ(download(a), ramp(6)) << reduce_overhead;
      EXPECT_EQ(download(b), ramp(6)) << reduce_overhead;
      EXPECT_EQ(download(c), ramp(1)) << reduce_overhead;
    }
  }
  gpu_->destroy_stream(*own);
}

TEST_F(CudaExecutableTest, AReplayReadsWhatIsThereNowAndFollowsTheCallersPointers) {
  const CudaExecutable executable = load(true);
  const DeviceBuffer in = upload(ramp(1)), other = upload(ramp(10)), a = memory(256),
                     b = memory(256), c = memory(256);
  const auto run = [&](const DeviceBuffer& input, const DeviceBuffer& output) {
    const DevicePtr inputs[] = {input.data()}, outputs[] = {output.data(), b.data(), c.data()};
    const Status launched = executable.launch(inputs, outputs, nullptr);
    EXPECT_TRUE(launched) << launched.error().message;
    return download(output);
  };
  EXPECT_EQ(run(in, a), ramp(6));
  ASSERT_TRUE(gpu_->copy_on_device(in.data(), other.data(), 256, nullptr));
  EXPECT_EQ(run(in, a), ramp(60)) << "the same pointers, other values";
  ASSERT_TRUE(gpu_->fill(in.data(), 0, 256, nullptr));
  EXPECT_EQ(run(other, a), ramp(60)) << "another input";
  const DeviceBuffer d = memory(256);
  EXPECT_EQ(run(other, d), ramp(60)) << "another output";
  EXPECT_EQ(run(in, a), ramp(0)) << "and back";
}

TEST_F(CudaExecutableTest, RefusesBuffersItCannotUse) {
  const CudaExecutable executable = load(false);
  const DeviceBuffer memory_of_test = memory(4096);
  const DevicePtr p = memory_of_test.data();
  const DevicePtr good[] = {p, p + 256, p + 512}, null[] = {0}, crooked[] = {p + 8, p, p};
  const auto code = [&](std::span<const DevicePtr> in, std::span<const DevicePtr> out) {
    const Status status = executable.launch(in, out, nullptr);
    return status ? Code::kInternal : status.error().code;
  };
  EXPECT_EQ(code({}, good), Code::kInvalidArgument);
  EXPECT_EQ(code({good, 1}, {good, 2}), Code::kInvalidArgument);
  EXPECT_EQ(code(null, good), Code::kInvalidArgument);
  EXPECT_EQ(code({good, 1}, crooked), Code::kInvalidArgument);
  EXPECT_EQ(code({crooked, 1}, good), Code::kInvalidArgument);
}

TEST_F(CudaExecutableTest, RefusesAProgramThatIsNotSound) {
  const Program good = program_;
  program_.kernels[1].blob = Digest::of("another");
  EXPECT_EQ(load_error(), Code::kCorruption);
  program_ = good;
  program_.buffers[1].spec.dtype = DType::kI32;
  EXPECT_EQ(load_error(), Code::kCorruption);
  program_ = good;
  program_.arena_bytes = Dim(int64_t{1} << 50);
  EXPECT_EQ(load_error(), Code::kUnavailable);
  program_ = good;
  artifacts_.pop_back();
  EXPECT_EQ(load_error(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace kiln
