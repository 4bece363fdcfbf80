// System-call filters (seccomp) of the processes that a worker starts. A filter only ever narrows:
// what inherits it, or adds another, cannot get a call back. Stateless.
#pragma once

#include <string>

#include "compiler_core/base/result.h"

namespace kiln {

enum class SandboxKind : uint8_t {
  kCompiler,   // a host compiler, or kiln-runner with NVRTC: may start programs
  kRunner,     // kernels on the CPU
  kGpuRunner,  // kernels on a GPU: its driver's calls are nobody's to list
};

// The program for the kernel, an array of struct sock_filter. Compilers and CPU runners get a list
// of what they may call, anything else is ENOSYS; GPU runners a list of what they may not (sockets,
// tracing, mounts, namespaces, keys, io_uring, ...), EPERM. No thread or process of theirs may ask
// for a namespace.
Result<std::string> make_filter(SandboxKind kind);

// For kiln-runner, once it is started and before it loads any kernel: no program and no process can
// be started from here on, threads can; signals reach this process only.
Status confine_runner();

}  // namespace kiln
