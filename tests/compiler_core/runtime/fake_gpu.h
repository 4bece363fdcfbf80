// The fake GPU for the tests of this folder, and kernels for it. Where the toolkit's headers were
// missing there is none, and the tests that ask for it are skipped.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "compiler_core/compile/nvrtc.h"
#include "compiler_core/runtime/cuda_device.h"

namespace kiln {

#ifdef KILN_FAKE_LIBCUDA
inline constexpr bool kHaveFakeGpu = true;
inline const std::string kFakeLibcuda = KILN_FAKE_LIBCUDA;
inline const std::string kFakeLibnvrtc = KILN_FAKE_LIBNVRTC;
inline const std::string kFakeLibcublaslt = KILN_FAKE_LIBCUBLASLT;
#else
inline constexpr bool kHaveFakeGpu = false;
inline const std::string kFakeLibcuda, kFakeLibnvrtc, kFakeLibcublaslt;
#endif

// A test with the fake GPU in `gpu_`.
class FakeGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kHaveFakeGpu) GTEST_SKIP() << "built without the CUDA toolkit's headers";
    auto opened = CudaDevice::open(0, kFakeLibcuda, kFakeLibcublaslt);
    ASSERT_TRUE(opened) << opened.error().message;
    gpu_ = *std::move(opened);
  }

  DeviceBuffer memory(int64_t bytes) const {
    auto buffer = DeviceBuffer::allocate(gpu_, bytes);
    EXPECT_TRUE(buffer) << buffer.error().message;
    return buffer ? *std::move(buffer) : DeviceBuffer();
  }
  DeviceBuffer upload(const std::vector<float>& values) const {
    DeviceBuffer buffer = memory(static_cast<int64_t>(values.size() * sizeof(float)));
    const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
    EXPECT_TRUE(gpu_->copy_to_device(buffer.data(), {bytes, values.size() * sizeof(float)}));
    return buffer;
  }
  std::vector<float> download(const DeviceBuffer& buffer) const {
    std::vector<float> values(static_cast<size_t>(buffer.bytes()) / sizeof(float));
    auto* bytes = reinterpret_cast<uint8_t*>(values.data());
    const Status copied = gpu_->copy_to_host({bytes, values.size() * sizeof(float)}, buffer.data());
    EXPECT_TRUE(copied) << copied.error().message;
    return values;
  }

  std::shared_ptr<const CudaDevice> gpu_;
};

// What the fake GPU has counted in this process: kiln_fake_maps_encoded, kiln_fake_early_launches.
inline int fake_count(const char* counter) {
  void* const driver = ::dlopen(kFakeLibcuda.c_str(), RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<int (*)()>(::dlsym(driver, counter))();
}

// `text` as the fake NVRTC compiles it, to be launched as `recipe` says. Compiled once a process.
inline Artifact gpu_artifact(const std::string& text, Recipe recipe) {
  static std::map<std::string, Artifact> made;
  if (const auto found = made.find(text); found != made.end())
    return {std::move(recipe), found->second.binary, found->second.digest};
  const auto nvrtc = Nvrtc::find(kFakeLibnvrtc);
  EXPECT_TRUE(nvrtc) << nvrtc.error().message;
  Target target;
  target.backend = Backend::kCuda;
  target.isa = "sm_90a";
  auto object = nvrtc->compile({text, std::move(recipe)}, target);
  EXPECT_TRUE(object) << object.error().message;
  return object ? made[text] = object->artifact : Artifact{};
}

// f32 in[64] -> f32 out[64], times `factor`, by two phases over the workspace.
inline Artifact scale_artifact(const std::string& factor) {
  Recipe recipe;
  recipe.inputs = recipe.outputs = {{DType::kF32, {Dim(64)}}};
  recipe.phases = {{"scale", Dim(2), 32}, {"finish", Dim(1), 64}};
  recipe.workspace_bytes = Dim(64 * 4);
  return gpu_artifact(R"(
KILN_KERNEL(32, 1) scale(const float* in, float* out, char* workspace) {
  const int i = block_index() * 32 + thread_index();
  reinterpret_cast<float*>(workspace)[i] = )" +
                          factor + R"( * in[i];
}
KILN_KERNEL(64, 1) finish(const float* in, float* out, char* workspace) {
  out[thread_index()] = reinterpret_cast<float*>(workspace)[thread_index()];
})",
                      std::move(recipe));
}

// 0, 1, ... times `step`.
inline std::vector<float> ramp(float step, size_t size = 64) {
  std::vector<float> values(size);
  for (size_t i = 0; i < size; ++i) values[i] = step * static_cast<float>(i);
  return values;
}

}  // namespace kiln
