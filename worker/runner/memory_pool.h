// MemoryPool: device memory that is used again. The driver takes long over large allocations, and a
// workload needs many of similar sizes, one after another. One thread; the pool outlives its
// memory.
#pragma once

#include <map>

#include "compiler_core/runtime/device.h"

namespace kiln::runner {

class MemoryPool;

// Device memory from a pool, that goes back to it. Movable.
class PooledMemory {
 public:
  PooledMemory() = default;
  PooledMemory(PooledMemory&& other) noexcept { *this = std::move(other); }
  PooledMemory& operator=(PooledMemory&& other) noexcept;
  ~PooledMemory();
  DevicePtr data() const { return buffer_.data(); }  // 256-byte aligned
  int64_t bytes() const { return buffer_.bytes(); }  // at least what was asked for

 private:
  friend class MemoryPool;
  DeviceBuffer buffer_;
  MemoryPool* pool_ = nullptr;
};

class MemoryPool {
 public:
  explicit MemoryPool(std::shared_ptr<const Device> device) : device_(std::move(device)) {}
  MemoryPool(const MemoryPool&) = delete;

  // Contents are unspecified. Work that is still queued on the one stream a runner uses may go on
  // using memory that was given back: its next user comes later on the same stream. kUnavailable:
  // the device has no more, even without what the pool keeps.
  Result<PooledMemory> allocate(int64_t bytes);
  // The same without giving anything back to the driver: for whoever has not queued yet all work
  // that uses memory it gave back.
  Result<PooledMemory> try_allocate(int64_t bytes);
  // Gives free memory back to the driver until at most `bytes` of it are kept.
  void trim(int64_t bytes);
  int64_t free_bytes() const { return free_bytes_; }

 private:
  friend class PooledMemory;
  void take_back(DeviceBuffer buffer);

  std::shared_ptr<const Device> device_;
  std::multimap<int64_t, DeviceBuffer> free_;  // by size
  int64_t free_bytes_ = 0;
};

}  // namespace kiln::runner
