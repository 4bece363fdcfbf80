// GpuProgram: a loaded CUDA program that also takes tensors of the host: it then keeps device
// memory for every input and output, allocated at the first such call. One call at a time.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "compiler_core/runtime/cuda_executable.h"

namespace kiln {

class GpuProgram {
 public:
  // As CudaExecutable::load.
  static Result<GpuProgram> load(std::shared_ptr<const CudaDevice> device, const Program& program,
                                 std::span<const Artifact> artifacts, bool reduce_overhead);

  const std::shared_ptr<const CudaDevice>& device() const { return device_; }
  // Canonical inputs, as CudaExecutable::launch.
  Status launch(std::span<const DevicePtr> inputs, std::span<const DevicePtr> outputs,
                CudaStream stream, std::span<const int64_t> symbols) const {
    return executable_.launch(inputs, outputs, stream, symbols);
  }
  // Canonical inputs and outputs in the host's memory, of the sizes that `symbols` give: copies,
  // launches, waits.
  Status run(std::span<void* const> inputs, std::span<void* const> outputs,
             std::span<const int64_t> symbols);

 private:
  GpuProgram(std::shared_ptr<const CudaDevice> device, CudaExecutable executable)
      : device_(std::move(device)), executable_(std::move(executable)) {}
  Status allocate(std::span<const int64_t> symbols);

  std::shared_ptr<const CudaDevice> device_;
  CudaExecutable executable_;
  // As large as the largest call so far needed.
  std::vector<DeviceBuffer> inputs_, outputs_;
  std::vector<int64_t> input_bytes_, output_bytes_;  // of the last call
  std::vector<DevicePtr> input_pointers_, output_pointers_;
};

}  // namespace kiln
