#include "compiler_core/runtime/cuda_kernel.h"

#include "tests/compiler_core/runtime/fake_gpu.h"

namespace kiln {
namespace {

class CudaKernelTest : public FakeGpuTest {
 protected:
  // One phase, one input and one output of 64 f32.
  static Recipe one_phase(std::string entry) {
    Recipe recipe;
    recipe.inputs = recipe.outputs = {{DType::kF32, {Dim(64)}}};
    recipe.phases = {{std::move(entry), Dim(1), 64}};
    return recipe;
  }
  Code load_error(const Artifact& artifact) const {
    const auto loaded = CudaKernel::load(gpu_, artifact);
    EXPECT_FALSE(loaded);
    if (loaded) return Code::kInternal;
    message_ = loaded.error().message;
    return loaded.error().code;
  }
  bool says(std::string_view part) const { return message_.find(part) != std::string::npos; }

  mutable std::string message_;
};

TEST_F(CudaKernelTest, PhasesFollowEachOtherOnTheStream) {
  const auto kernel = CudaKernel::load(gpu_, scale_artifact("3"));
  ASSERT_TRUE(kernel) << kernel.error().message;
  const DeviceBuffer in = upload(ramp(1)), out = memory(256), workspace = memory(256);
  const DevicePtr args[] = {in.data(), out.data()};
  const auto stream = gpu_->create_stream();
  ASSERT_TRUE(stream);
  for (CudaStream where : {CudaStream{nullptr}, *stream}) {
    ASSERT_TRUE(gpu_->fill(out.data(), 0xff, out.bytes(), where));
    const Status launched = kernel->launch(args, workspace.data(), {}, where, {});
    ASSERT_TRUE(launched) << launched.error().message;
    ASSERT_TRUE(gpu_->synchronize(where));
    EXPECT_EQ(download(out), ramp(3));
  }
  gpu_->destroy_stream(*stream);
}

TEST_F(CudaKernelTest, SymbolsSizeTheGridAndReachTheKernel) {
  Recipe recipe = one_phase("count");
  recipe.phases[0].grid = Dim::symbol(0);
  const Artifact artifact = gpu_artifact(R"(
KILN_KERNEL(1, 1) count(const float* in, float* out, char*, long blocks, long offset) {
  out[block_index()] = in[block_index()] + blocks + 100 * offset;
})",
                                         [&] {
                                           recipe.phases[0].threads = 1;
                                           return recipe;
                                         }());
  const auto kernel = CudaKernel::load(gpu_, artifact);
  ASSERT_TRUE(kernel) << kernel.error().message;
  const DeviceBuffer in = upload(ramp(1)), out = upload(ramp(0));
  const DevicePtr args[] = {in.data(), out.data()};
  ASSERT_TRUE(kernel->launch(args, 0, std::vector<int64_t>{2, 7}, nullptr, {}));
  ASSERT_TRUE(kernel->launch(args, 0, std::vector<int64_t>{0, 9}, nullptr, {})) << "an empty grid";
  ASSERT_TRUE(gpu_->synchronize(nullptr));
  const std::vector<float> values = download(out);
  EXPECT_EQ(values[0], 702);
  EXPECT_EQ(values[1], 703);
  EXPECT_EQ(values[2], 0);
}

TEST_F(CudaKernelTest, BytesOfAnotherDigestNeverReachTheDriver) {
  Artifact artifact = scale_artifact("3");
  artifact.binary.back() = static_cast<char>(artifact.binary.back() ^ 1);
  EXPECT_EQ(load_error(artifact), Code::kCorruption);
}

TEST_F(CudaKernelTest, WhatIsNoCubinIsRefused) {
  Artifact artifact = scale_artifact("3");
  artifact.binary = std::string(4096, 'x');
  artifact.digest = Digest::of(artifact.binary);
  EXPECT_EQ(load_error(artifact), Code::kInvalidArgument);
  EXPECT_TRUE(says("CUDA_ERROR_INVALID_IMAGE")) << message_;
  artifact.binary.clear();
  artifact.digest = Digest::of(artifact.binary);
  EXPECT_EQ(load_error(artifact), Code::kInvalidArgument);
}

TEST_F(CudaKernelTest, AMissingEntryIsNamed) {
  Artifact artifact = scale_artifact("3");
  artifact.recipe.phases[1].entry = "absent";
  EXPECT_EQ(load_error(artifact), Code::kInvalidArgument);
  EXPECT_TRUE(says("'absent'")) << message_;
  EXPECT_TRUE(says("CUDA_ERROR_NOT_FOUND")) << message_;
}

TEST_F(CudaKernelTest, APhaseThatTheDeviceCannotHoldIsRefused) {
  Artifact artifact = scale_artifact("3");
  const Artifact good = artifact;
  artifact.recipe.phases[0].shared_bytes = gpu_->facts().max_shared_bytes + 1;
  EXPECT_EQ(load_error(artifact), Code::kInvalidArgument);
  EXPECT_TRUE(says("shared memory")) << message_;
  artifact = good;
  artifact.recipe.phases[0].threads = 1025;
  EXPECT_EQ(load_error(artifact), Code::kInvalidArgument);
  artifact.recipe.phases[0].threads = 64;  // compiled for 32
  EXPECT_EQ(load_error(artifact), Code::kInvalidArgument);
  EXPECT_TRUE(says("leave room for 32")) << message_;
  artifact = good;
  artifact.recipe.phases[0].cluster = 3;
  EXPECT_EQ(load_error(artifact), Code::kInvalidArgument);
  EXPECT_TRUE(says("clusters of 3")) << message_;
}

TEST_F(CudaKernelTest, SharedMemoryAndClustersBeyondTheUsualAreAskedFor) {
  Recipe recipe = one_phase("wide");
  recipe.phases[0] = {"wide", Dim(16), 32, 16, 200 << 10};
  const auto kernel = CudaKernel::load(gpu_, gpu_artifact(R"(
KILN_KERNEL(32, 1) wide(const float* in, float* out, char*) {
  float* shared = reinterpret_cast<float*>(shared_memory());
  shared[50000 + thread_index()] = in[thread_index()];
  block_barrier();
  if (thread_index() == 0) out[block_index()] = shared[50001] + cluster_rank();
})",
                                                          recipe));
  ASSERT_TRUE(kernel) << kernel.error().message;
  const DeviceBuffer in = upload(ramp(5)), out = upload(ramp(0));
  const DevicePtr args[] = {in.data(), out.data()};
  const Status launched = kernel->launch(args, 0, {}, nullptr, {});
  ASSERT_TRUE(launched) << launched.error().message;
  EXPECT_EQ(download(out)[15], 20);
}

TEST_F(CudaKernelTest, AFaultMarksTheDeviceLost) {
  const auto kernel = CudaKernel::load(gpu_, gpu_artifact(R"(
KILN_KERNEL(64, 1) stray(const float* in, float* out, char*) {
  out[(1 << 28) + thread_index()] = in[thread_index()];
})",
                                                          one_phase("stray")));
  ASSERT_TRUE(kernel) << kernel.error().message;
  const DeviceBuffer in = upload(ramp(1)), out = memory(256);
  const DevicePtr args[] = {in.data(), out.data()};
  ASSERT_TRUE(kernel->launch(args, 0, {}, nullptr, {})) << "the fault comes later";
  const Status fault = gpu_->synchronize(nullptr);
  ASSERT_FALSE(fault);
  EXPECT_EQ(fault.error().code, Code::kUnavailable);
  EXPECT_NE(fault.error().message.find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos)
      << fault.error().message;
  EXPECT_TRUE(gpu_->is_lost());
  EXPECT_EQ(kernel->launch(args, 0, {}, nullptr, {}).error().code, Code::kUnavailable);
  EXPECT_EQ(gpu_->allocate(16).error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace kiln
