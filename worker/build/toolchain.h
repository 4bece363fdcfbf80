// Toolchain: what the compile pool compiles with: for each of its threads a CompileTool, and keys
// by which equal compiles are known.
//
//   CPU    a child process of the host compiler for each compile
//   CUDA   a kiln-runner with NVRTC for each thread, kept alive, since the first compile of a
//          process costs a quarter of a second more
#pragma once

#include <functional>
#include <memory>

#include "compiler_core/compile/compiler.h"
#include "compiler_core/compile/nvrtc.h"
#include "worker/runner/runner_process.h"

namespace kiln {

// One thread, except interrupt() and close().
class CompileTool {
 public:
  struct Object {
    std::string binary;
    KernelResources resources;  // zeros where the compiler does not say
  };
  virtual ~CompileTool() = default;
  virtual void warm_up() {}
  // Errors as KernelCompiler::compile.
  virtual Result<Object> compile(const Source& source, const Target& target,
                                 int64_t timeout_ms) = 0;
  virtual void interrupt() {}  // the compile in progress may fail as kDeadlineExceeded, soon
  virtual void close() {}      // the same at any price; nothing is compiled any more
};

struct Toolchain {
  std::string build;
  std::function<Digest(const Source&, const Target&)> candidate_key;  // any thread
  // On the thread that uses the tool, and destroys it before it ends: child processes die with the
  // thread that started them.
  std::function<std::unique_ptr<CompileTool>()> make_tool;
};

Toolchain host_toolchain(const HostCompiler& compiler);
// `nvrtc` makes the keys here; the processes find theirs at `libnvrtc` again. `device`: what they
// warm up for.
Toolchain nvrtc_toolchain(const Nvrtc& nvrtc, const Path& runner, const std::string& libnvrtc,
                          const Target& device, std::shared_ptr<const Sandbox> sandbox = {});

// The kernels that a runner itself uses on a GPU: random inputs, the reference, guards, comparison
// (worker/runner/cuda/kernels). A worker compiles them once for its device and hands the cubin to
// each runner it starts. The recipe is empty: entries are launched by name
// (cuda_evaluation_device.h).
Source utility_kernels_source();

}  // namespace kiln
