#include "client/cli/device_tensors.h"

#include <algorithm>

namespace kiln::cli {

Error refused_by_device(Error error) {
  if (error.code == Code::kUnavailable) error.code = Code::kInternal;
  return error;
}

Status DeviceTensors::add(const std::shared_ptr<const Device>& device, int64_t bytes) {
  auto buffer = DeviceBuffer::allocate(device, std::max<int64_t>(bytes, 1));
  if (!buffer) {
    if (buffer.error().code == Code::kUnavailable) buffer.error().code = Code::kOverloaded;
    return fail(std::move(buffer).error());
  }
  pointers_.push_back(buffer->data());
  buffers_.push_back(*std::move(buffer));
  return {};
}

Result<DeviceTensors> DeviceTensors::copies_of(const std::shared_ptr<const Device>& device,
                                               std::span<const Tensor* const> tensors) {
  DeviceTensors copies;
  for (const Tensor* tensor : tensors) {
    TRY_STATUS(copies.add(device, tensor->byte_size()));
    TRY_STATUS(device->copy_to_device(copies.pointers_.back(), tensor->bytes()));
  }
  return copies;
}

Result<DeviceTensors> DeviceTensors::sized_as(const std::shared_ptr<const Device>& device,
                                              std::span<const Tensor> tensors) {
  DeviceTensors sized;
  for (const Tensor& tensor : tensors) TRY_STATUS(sized.add(device, tensor.byte_size()));
  return sized;
}

}  // namespace kiln::cli
