#include <utility>

#include "compiler_core/runtime/cuda_device.h"

namespace kiln {

Result<DeviceBuffer> DeviceBuffer::allocate(std::shared_ptr<const CudaDevice> device,
                                            int64_t bytes) {
  DeviceBuffer buffer;
  if (bytes > 0) {
    TRY(buffer.data_, device->allocate(bytes));
    buffer.bytes_ = bytes;
  }
  buffer.device_ = std::move(device);
  return buffer;
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : device_(std::move(other.device_)),
      data_(std::exchange(other.data_, 0)),
      bytes_(std::exchange(other.bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  DeviceBuffer old(std::move(*this));
  device_ = std::move(other.device_);
  data_ = std::exchange(other.data_, 0);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != 0) device_->release(data_);
}

}  // namespace kiln
