// CpuDevice: this machine's cores as a Device: a thread pool that runs the blocks of a launch, and
// plain memory. Owns the pool. Work is done when a call returns; the stream is always null.
#pragma once

#include "compiler_core/runtime/device.h"
#include "compiler_core/runtime/thread_pool.h"

namespace kiln {

class CpuDevice : public Device {
 public:
  // `threads` as for ThreadPool.
  static std::shared_ptr<const CpuDevice> make(int threads = 0);

  ThreadPool& pool() const { return pool_; }

  Target target() const override;
  std::string_view place() const override { return "this machine"; }
  int64_t alignment() const override { return 64; }
  int64_t memory_bytes() const override;
  Result<int64_t> free_bytes() const override;
  int64_t cache_bytes() const override;
  bool is_host() const override { return true; }

  Result<DevicePtr> allocate(int64_t bytes) const override;
  void release(DevicePtr memory) const override;
  Status copy_to_device(DevicePtr to, std::span<const uint8_t> from) const override;
  Status copy_to_host(std::span<uint8_t> to, DevicePtr from) const override;
  Status copy_on_device(DevicePtr to, DevicePtr from, int64_t bytes, Stream stream) const override;
  Status fill(DevicePtr memory, uint8_t value, int64_t bytes, Stream stream) const override;

  Result<Stream> create_stream() const override { return nullptr; }
  void destroy_stream(Stream) const override {}
  Status synchronize(Stream) const override { return {}; }
  Result<std::unique_ptr<Event>> create_event() const override;
  Result<std::unique_ptr<LaunchGraph>> capture(
      const std::function<Status(Stream)>& launches) const override;

  size_t most_side_by_side() const override;
  // The blocks of all launches are shared out together, without a barrier between them.
  Status launch_step(std::span<const BoundLaunch> step, DevicePtr workspace,
                     Stream stream) const override;

 private:
  Result<std::unique_ptr<const LoadedKernel>> load_as_told(const Artifact& artifact) const override;
  explicit CpuDevice(int threads) : pool_(threads) {}
  mutable ThreadPool pool_;  // one launch at a time
};

}  // namespace kiln
