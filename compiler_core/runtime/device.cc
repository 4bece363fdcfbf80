#include "compiler_core/runtime/device.h"

#include <utility>

namespace kiln {

Status Device::launch_step(std::span<const BoundLaunch> step, DevicePtr workspace,
                           Stream stream) const {
  for (const BoundLaunch& launch : step)
    TRY_STATUS(launch.kernel->launch(launch.args, workspace, launch.dims, stream, launch.order));
  return {};
}

Result<std::unique_ptr<const LoadedKernel>> Device::load(const Artifact& artifact) const {
  auto loaded = load_as_told(artifact);
  if (loaded || loaded.error().code != Code::kUnsupported || !artifact.fallback) return loaded;
  return load_as_told({*artifact.fallback, artifact.binary, artifact.digest});
}

Result<DeviceBuffer> DeviceBuffer::allocate(std::shared_ptr<const Device> device, int64_t bytes) {
  DeviceBuffer buffer;
  if (bytes > 0) {
    TRY(buffer.data_, device->allocate(bytes));
    buffer.bytes_ = bytes;
  }
  buffer.device_ = std::move(device);
  return buffer;
}

Status DeviceBuffer::reserve(const std::shared_ptr<const Device>& device, int64_t bytes) {
  if (bytes <= bytes_) return {};
  *this = DeviceBuffer();
  TRY(*this, allocate(device, bytes));
  return {};
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
