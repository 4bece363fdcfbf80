// LoadedProgram: a program on a device that also takes tensors of the host: on a GPU it then keeps
// device memory for every input and output, allocated at the first such call. One call at a time, but for
// launches with scratch of the caller's.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "compiler_core/runtime/executable.h"

namespace kiln {

class LoadedProgram {
 public:
  explicit LoadedProgram(Executable executable) : executable_(std::move(executable)) {}

  const std::shared_ptr<const Device>& device() const { return executable_.device(); }
  // With the recipes that run: a fallback's in the place of a library call that is not possible.
  const Program& program() const { return executable_.program(); }
  // Canonical inputs, as Executable::launch.
  Status launch(std::span<const DevicePtr> inputs, std::span<const DevicePtr> outputs,
                Stream stream, std::span<const int64_t> symbols) const {
    return executable_.launch(inputs, outputs, stream, symbols);
  }
  Status launch(std::span<const DevicePtr> inputs, std::span<const DevicePtr> outputs,
                DevicePtr scratch, Stream stream, std::span<const int64_t> symbols) const {
    return executable_.launch(inputs, outputs, scratch, stream, symbols);
  }
  Result<std::vector<LaunchTime>> profile(std::span<const DevicePtr> inputs,
                                          std::span<const DevicePtr> outputs, Stream stream,
                                          std::span<const int64_t> symbols) const {
    return executable_.profile(inputs, outputs, stream, symbols);
  }
  Result<int64_t> scratch_bytes(std::span<const int64_t> symbols) const {
    return executable_.scratch_bytes(symbols);
  }
  // Canonical inputs and outputs in the host's memory, of the sizes that `symbols` give: copies
  // where it must, launches, waits.
  Status run(std::span<void* const> inputs, std::span<void* const> outputs,
             std::span<const int64_t> symbols);

 private:
  // Device memory for the inputs, or the outputs, of host calls: as large as the largest so far.
  struct Staging {
    std::vector<DeviceBuffer> buffers;
    std::vector<int64_t> bytes;  // of the last call
    std::vector<DevicePtr> pointers;
    Status reserve(const std::shared_ptr<const Device>& device, size_t index, int64_t bytes);
  };
  Status allocate(std::span<const int64_t> symbols);

  Executable executable_;
  Staging inputs_, outputs_;
};

}  // namespace kiln
