#include "client/toolchains.h"

#include <fmt/core.h>

#include "compiler_core/compile/compiler.h"
#include "compiler_core/compile/nvrtc_compiler.h"

namespace kiln {
namespace {

// The driver loads code of its own major version and of older ones.
Status check_toolkit(const Target& target, const std::string& toolkit) {
  Target made = target;
  made.toolkit = toolkit;
  if (target.can_run(made)) return {};
  return fail(Code::kUnsupported,
              fmt::format("the NVRTC here is of {}, the GPU's driver loads {} at most; name an "
                          "older one with KILN_LIBNVRTC, or update the driver",
                          toolkit, target.toolkit));
}

}  // namespace

Toolchains::Toolchains(std::string host_compiler, std::string libnvrtc, const GpuOpening& gpu)
    : host_compiler_(std::move(host_compiler)),
      gpu_(gpu),
      nvrtc_(std::async(std::launch::deferred,
                        [library = std::move(libnvrtc)] { return Nvrtc::find(library); })) {}

Result<std::unique_ptr<const KernelCompiler>> Toolchains::compiler_for(const Target& target) const {
  if (target.backend == Backend::kCpu) {
    TRY(HostCompiler host, HostCompiler::find(host_compiler_));
    return std::make_unique<const HostCompiler>(std::move(host));
  }
  const Result<Nvrtc>& nvrtc = nvrtc_.get();
  if (!nvrtc)
    return fail(
        nvrtc.error().code == Code::kNotFound ? Code::kUnavailable : nvrtc.error().code,
        fmt::format("cannot compile for {} here: {}", target.to_string(), nvrtc.error().message));
  TRY_STATUS(check_toolkit(target, nvrtc->toolkit()));
  return std::make_unique<const NvrtcCompiler>(*nvrtc);
}

Result<Target> Toolchains::complete(const Target& asked) const {
  if (asked.backend == Backend::kCuda) return complete_cuda(asked);
  return asked.isa.empty() ? host_cpu_target() : asked;
}

Result<Target> Toolchains::complete_cuda(const Target& asked) const {
  const Result<CudaFacts>& facts = gpu_.facts();
  if (!facts && asked.isa.empty())
    return fail(facts.error().code,
                fmt::format("{}; without a GPU, name the one to compile for: cuda:sm_90a",
                            facts.error().message));
  if (facts) {
    Target here = facts->target();
    if (asked.isa.empty()) return here;
    if (here.can_run(asked)) {
      here.isa = asked.isa;
      return here;
    }
  }
  Target target = asked;
  if (target.toolkit.empty() && nvrtc_.get()) target.toolkit = nvrtc_.get()->toolkit();
  return target;
}

}  // namespace kiln
