// GpuLab: what the GPU tests share: a device, a compiler for it, the bench runner's kernels on it,
// and where the runner is. Made once a process, since all of these take a while.
#pragma once

#include <gtest/gtest.h>

#include "compiler_core/compile/nvrtc.h"
#include "worker/runner/cuda/cuda_evaluation_device.h"

namespace kiln::test {

struct GpuFlags {
  std::string libcuda, libnvrtc;  // empty: the usual ones
  std::string runner;             // the kiln-runner to start
  int ordinal = 0;
};

class GpuLab {
 public:
  // Called by main, before any test.
  static void set_flags(GpuFlags flags);
  // kNotFound or kUnsupported: there is no GPU here. kInternal: there is one, but what the tests
  // need beside it is missing or broken.
  static Result<GpuLab*> instance();

  const GpuFlags& flags() const { return flags_; }
  const std::shared_ptr<const CudaDevice>& device() const { return device_; }
  runner::CudaEvaluationDevice& evaluation_device() { return *evaluation_; }
  const Artifact& utility_kernels() const { return utility_kernels_; }
  // `body` stands behind device.cuh. Fails the test and gives nothing when it is refused.
  Artifact compile(const std::string& body, Recipe recipe) const;
  // Code that was generated, with its preamble.
  Result<Artifact> compile(const Source& source) const;

 private:
  static Result<std::unique_ptr<GpuLab>> make();

  GpuFlags flags_;
  std::shared_ptr<const CudaDevice> device_;
  std::optional<Nvrtc> nvrtc_;
  Artifact utility_kernels_;
  std::unique_ptr<runner::CudaEvaluationDevice> evaluation_;
};

// Skips its tests where there is no GPU.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto lab = GpuLab::instance();
    if (!lab && lab.error().code == Code::kInternal) FAIL() << lab.error().message;
    if (!lab) GTEST_SKIP() << lab.error().message;
    lab_ = *lab;
  }
  runner::CudaEvaluationDevice& device() const { return lab_->evaluation_device(); }
  GpuLab* lab_ = nullptr;
};

}  // namespace kiln::test
