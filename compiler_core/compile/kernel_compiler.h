// KernelCompiler: source text in, binary out; one for each toolchain. Implementations are immutable
// and thread-safe.
//
//   HostCompiler   C++ to a shared object, a child process each time   (compiler.h)
//   NvrtcCompiler  CUDA C++ to a cubin, in this process                (nvrtc_compiler.h)
#pragma once

#include <string>

#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/artifact.h"

namespace kiln {

class KernelCompiler {
 public:
  virtual ~KernelCompiler() = default;

  // "g++ (Debian 12.2.0-14+deb12u1) 12.2.0", "nvrtc 13.0.88": part of the candidate key.
  virtual const std::string& build() const = 0;

  // Spares a compile: digest of source text, path-free flags and compiler build.
  virtual Digest candidate_key(const Source& source, const Target& target) const = 0;

  // The same source, target and build give the same bytes. kInvalidArgument with the compiler's
  // output when the source is refused (a verdict, not a fault); kDeadlineExceeded past the timeout;
  // kUnavailable when the compiler cannot run; kUnsupported for a target it makes no code for.
  virtual Result<Artifact> compile(const Source& source, const Target& target,
                                   int64_t timeout_ms) const = 0;

  // compile() of text; a finished binary as it is.
  Result<Artifact> build(const Buildable& buildable, const Target& target,
                         int64_t timeout_ms) const {
    if (const Artifact* finished = std::get_if<Artifact>(&buildable)) return *finished;
    return compile(std::get<Source>(buildable), target, timeout_ms);
  }
};

}  // namespace kiln
