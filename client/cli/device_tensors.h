// DeviceTensors: the inputs, or the outputs, of a call in the memory of a program's device, for
// commands that launch on pointers. Owns the memory. A value.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "compiler_core/base/tensor.h"
#include "compiler_core/runtime/device.h"

namespace kiln::cli {

class DeviceTensors {
 public:
  // Copies of `tensors`. kOverloaded when the device has no room.
  static Result<DeviceTensors> copies_of(const std::shared_ptr<const Device>& device,
                                         std::span<const Tensor* const> tensors);
  // Memory for tensors of these sizes, not initialised. kOverloaded as above.
  static Result<DeviceTensors> sized_as(const std::shared_ptr<const Device>& device,
                                        std::span<const Tensor> tensors);

  std::span<const DevicePtr> pointers() const { return pointers_; }

 private:
  Status add(const std::shared_ptr<const Device>& device, int64_t bytes);

  std::vector<DeviceBuffer> buffers_;
  std::vector<DevicePtr> pointers_;
};

// A device's refusal with another code than kUnavailable, which to commands is a service that is not
// reached.
Error refused_by_device(Error error);

}  // namespace kiln::cli
