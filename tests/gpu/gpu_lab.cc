#include "tests/gpu/gpu_lab.h"

#include "compiler_core/kernels/printing/device_text.h"
#include "worker/build/toolchain.h"

namespace kiln::test {
namespace {

GpuFlags& the_flags() {
  static GpuFlags flags;
  return flags;
}

}  // namespace

void GpuLab::set_flags(GpuFlags flags) {
  the_flags() = std::move(flags);
}

Result<GpuLab*> GpuLab::instance() {
  static const Result<std::unique_ptr<GpuLab>> lab = make();
  if (!lab) return fail(lab.error());
  return lab->get();
}

Result<std::unique_ptr<GpuLab>> GpuLab::make() {
  auto lab = std::make_unique<GpuLab>();
  lab->flags_ = the_flags();
  TRY(lab->device_, CudaDevice::open(lab->flags_.ordinal, lab->flags_.libcuda));
  const auto broken = [](const Error& error) { return fail(Code::kInternal, error.message); };
  auto nvrtc = Nvrtc::find(lab->flags_.libnvrtc);
  if (!nvrtc) return broken(nvrtc.error());
  lab->nvrtc_.emplace(*std::move(nvrtc));
  auto compiled = lab->nvrtc_->compile(utility_kernels_source(), lab->device_->facts().target());
  if (!compiled) return broken(compiled.error());
  lab->utility_kernels_ = std::move(compiled->artifact);
  auto loaded = runner::CudaEvaluationDevice::load(lab->device_, lab->utility_kernels_.binary,
                                                   lab->utility_kernels_.digest);
  if (!loaded) return broken(loaded.error());
  lab->evaluation_ = *std::move(loaded);
  return lab;
}

Artifact GpuLab::compile(const std::string& body, Recipe recipe) const {
  const std::string text = std::string(device_text("device.cuh")) + body;
  auto compiled = nvrtc_->compile({text, std::move(recipe)}, device_->facts().target());
  EXPECT_TRUE(compiled.has_value()) << (compiled ? "" : compiled.error().message);
  return compiled ? std::move(compiled->artifact) : Artifact{};
}

Result<Artifact> GpuLab::compile(const Source& source) const {
  TRY(auto compiled, nvrtc_->compile(source, device_->facts().target()));
  return std::move(compiled.artifact);
}

}  // namespace kiln::test
