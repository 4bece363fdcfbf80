#include "compiler_core/runtime/cpu_device.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "compiler_core/base/check.h"
#include "compiler_core/runtime/aligned_buffer.h"
#include "compiler_core/runtime/host_memory.h"
#include "compiler_core/runtime/kernel.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

void* host(DevicePtr pointer) {
  return reinterpret_cast<void*>(pointer);  // NOLINT(performance-no-int-to-ptr)
}

// Kernels take their arguments as an array of pointers: the same bytes.
std::span<void* const> host(std::span<const DevicePtr> pointers) {
  static_assert(sizeof(void*) == sizeof(DevicePtr));
  return {reinterpret_cast<void* const*>(pointers.data()), pointers.size()};
}

class CpuKernel : public LoadedKernel {
 public:
  CpuKernel(std::shared_ptr<const CpuDevice> device, Kernel kernel)
      : device_(std::move(device)), kernel_(std::move(kernel)) {}
  const Kernel& kernel() const { return kernel_; }

  const Recipe& recipe() const override { return kernel_.recipe(); }
  Status launch(std::span<const DevicePtr> args, DevicePtr workspace, std::span<const int64_t> dims,
                Stream, const LaunchOrder&) const override {
    kernel_.launch(host(args), dims, host(workspace), device_->pool());
    return {};
  }

 private:
  std::shared_ptr<const CpuDevice> device_;
  Kernel kernel_;
};

class CpuEvent : public Event {
 public:
  Status record(Stream) const override {
    at_ = Clock::now();
    return {};
  }
  Result<double> us_since(const Event& start) const override {
    const auto since = at_ - static_cast<const CpuEvent&>(start).at_;
    return std::chrono::duration<double, std::micro>(since).count();
  }

 private:
  mutable Clock::time_point at_;
};

}  // namespace

std::shared_ptr<const CpuDevice> CpuDevice::make(int threads) {
  return std::shared_ptr<const CpuDevice>(new CpuDevice(threads));
}

Target CpuDevice::target() const {
  Target target = host_cpu_target();
  target.units = pool_.threads();
  return target;
}

int64_t CpuDevice::memory_bytes() const {
  return int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGE_SIZE);
}

Result<int64_t> CpuDevice::free_bytes() const {
  return available_host_memory();
}

int64_t CpuDevice::cache_bytes() const {
  const long per_core = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
  return (per_core > 0 ? int64_t{per_core} : int64_t{2} << 20) * pool_.threads();
}

Result<DevicePtr> CpuDevice::allocate(int64_t bytes) const {
  CHECK(bytes > 0, "sizes come from a checked recipe or program");
  AlignedBuffer buffer;
  TRY_STATUS(buffer.reserve(bytes));
  return device_ptr(buffer.take());
}

void CpuDevice::release(DevicePtr memory) const {
  std::free(host(memory));
}

Status CpuDevice::copy_to_device(DevicePtr to, std::span<const uint8_t> from) const {
  if (!from.empty()) std::memcpy(host(to), from.data(), from.size());
  return {};
}

Status CpuDevice::copy_to_host(std::span<uint8_t> to, DevicePtr from) const {
  if (!to.empty()) std::memcpy(to.data(), host(from), to.size());
  return {};
}

Status CpuDevice::copy_on_device(DevicePtr to, DevicePtr from, int64_t bytes, Stream) const {
  if (bytes > 0) std::memcpy(host(to), host(from), static_cast<size_t>(bytes));
  return {};
}

Status CpuDevice::fill(DevicePtr memory, uint8_t value, int64_t bytes, Stream) const {
  if (bytes > 0) std::memset(host(memory), value, static_cast<size_t>(bytes));
  return {};
}

Result<std::unique_ptr<Event>> CpuDevice::create_event() const {
  return std::make_unique<CpuEvent>();
}

Result<std::unique_ptr<LaunchGraph>> CpuDevice::capture(
    const std::function<Status(Stream)>&) const {
  return fail(Code::kUnsupported, "the CPU captures no launches");
}

Result<std::unique_ptr<const LoadedKernel>> CpuDevice::load_as_told(
    const Artifact& artifact) const {
  TRY(Kernel kernel, Kernel::load(artifact));
  return std::make_unique<const CpuKernel>(
      std::static_pointer_cast<const CpuDevice>(shared_from_this()), std::move(kernel));
}

size_t CpuDevice::most_side_by_side() const {
  return Kernel::kMostSideBySide;
}

Status CpuDevice::launch_step(std::span<const BoundLaunch> step, DevicePtr workspace,
                              Stream stream) const {
  if (step.size() == 1)
    return step[0].kernel->launch(step[0].args, workspace, step[0].dims, stream, step[0].order);
  CHECK(step.size() <= Kernel::kMostSideBySide, "so many launches at once");
  std::array<Kernel::BoundLaunch, Kernel::kMostSideBySide> calls;
  for (size_t i = 0; i < step.size(); ++i)
    calls[i] = {&static_cast<const CpuKernel*>(step[i].kernel)->kernel(), host(step[i].args),
                step[i].dims};
  Kernel::launch_side_by_side({calls.data(), step.size()}, pool_);
  return {};
}

}  // namespace kiln
