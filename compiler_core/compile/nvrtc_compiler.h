// NvrtcCompiler: NVRTC as a KernelCompiler, in the caller's process: what a client without a
// service compiles with. (The worker compiles in processes of its own: a compiler that crashes must
// not take it down, and several are faster than threads.)
#pragma once

#include "compiler_core/compile/kernel_compiler.h"
#include "compiler_core/compile/nvrtc.h"

namespace kiln {

class NvrtcCompiler final : public KernelCompiler {
 public:
  explicit NvrtcCompiler(Nvrtc nvrtc) : nvrtc_(std::move(nvrtc)) {}

  const std::string& build() const override { return nvrtc_.build(); }
  Digest candidate_key(const Source& source, const Target& target) const override;
  // Targets: the SM architectures. The timeout is looked at whenever NVRTC asks, several times a
  // second, and not in ptxas's longest phases.
  Result<Artifact> compile(const Source& source, const Target& target,
                           int64_t timeout_ms) const override;

 private:
  Nvrtc nvrtc_;
};

}  // namespace kiln
