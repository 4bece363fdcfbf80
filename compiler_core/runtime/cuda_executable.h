// CudaExecutable: a loaded CUDA program with its arena on the device, ready to launch on the
// caller's stream and device pointers. Owns kernels, arena and workspace; the caller's memory is
// borrowed until the stream has passed the launch.
#pragma once

#include <memory>
#include <span>

#include "compiler_core/program/program.h"
#include "compiler_core/runtime/cuda_kernel.h"

namespace kiln {

class CudaExecutable {
 public:
  struct Options {
    // Launches are captured into a CUDA graph and replayed, one for each of the last few sizes;
    // with other pointers the graph is updated first.
    bool reduce_overhead = false;
  };
  // As Executable::load; errors also as CudaKernel::load.
  static Result<CudaExecutable> load(std::shared_ptr<const CudaDevice> device, Program program,
                                     std::span<const Artifact> artifacts, Options options);
  CudaExecutable(CudaExecutable&&) noexcept;
  CudaExecutable& operator=(CudaExecutable&&) noexcept;
  ~CudaExecutable();

  const Program& program() const;
  const CudaDevice& device() const;
  // Canonical inputs and outputs: dense row-major device memory, 16-byte aligned. Puts the work on
  // `stream` and returns; launches of one object must be ordered by their streams, since they share
  // arena and workspace. One call at a time. Memory for sizes larger than any before is allocated
  // here: kInvalidArgument when `stream` is being captured then. Errors as Executable::run, and as
  // CudaKernel::launch.
  Status launch(std::span<const DevicePtr> inputs, std::span<const DevicePtr> outputs,
                CudaStream stream, std::span<const int64_t> dims = {}) const;

 private:
  struct Impl;
  explicit CudaExecutable(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
