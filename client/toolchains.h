// Toolchains: the compilers on this machine, found when first needed: the host's for the CPU, NVRTC
// for GPUs. And what they and the GPU here make of a target that is not said in full. Thread-safe.
#pragma once

#include <future>
#include <memory>
#include <string>

#include "client/gpu_opening.h"
#include "compiler_core/compile/kernel_compiler.h"
#include "compiler_core/compile/nvrtc.h"

namespace kiln {

class Toolchains {
 public:
  // As HostCompiler::find and Nvrtc::find take them. `gpu` outlives this.
  Toolchains(std::string host_compiler, std::string libnvrtc, const GpuOpening& gpu);

  // The compiler of `target`'s code. kUnavailable when there is none here, and says what to do;
  // kUnsupported when the GPU's driver is too old for the code it would make.
  Result<std::unique_ptr<const KernelCompiler>> compiler_for(const Target& target) const;

  // `asked` with every fact that follows from this machine: the CPU or GPU here when it names no
  // ISA, and their soft facts when they can run the one it names. For a GPU that is not here, the
  // toolkit of the NVRTC here. kUnsupported, kNotFound: no ISA and no GPU.
  Result<Target> complete(const Target& asked) const;

 private:
  Result<Target> complete_cuda(const Target& asked) const;

  const std::string host_compiler_;
  const GpuOpening& gpu_;
  const std::shared_future<Result<Nvrtc>> nvrtc_;
};

}  // namespace kiln
