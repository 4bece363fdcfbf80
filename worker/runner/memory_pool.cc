#include "worker/runner/memory_pool.h"

#include <algorithm>
#include <utility>

namespace kiln::runner {
namespace {

constexpr int64_t kSmall = int64_t{64} << 10;
constexpr int64_t kLarge = int64_t{2} << 20;  // the driver's page

// So that similar sizes are one size.
int64_t rounded(int64_t bytes) {
  const int64_t unit = bytes <= kLarge ? kSmall : kLarge;
  return std::max(unit, (bytes + unit - 1) / unit * unit);
}

}  // namespace

PooledMemory& PooledMemory::operator=(PooledMemory&& other) noexcept {
  std::swap(buffer_, other.buffer_);
  std::swap(pool_, other.pool_);
  return *this;
}

PooledMemory::~PooledMemory() {
  if (pool_ != nullptr) pool_->take_back(std::move(buffer_));
}

Result<PooledMemory> MemoryPool::allocate(int64_t bytes) {
  auto memory = try_allocate(bytes);
  if (memory || free_.empty() || device_->is_lost()) return memory;
  trim(0);
  return try_allocate(bytes);
}

Result<PooledMemory> MemoryPool::try_allocate(int64_t bytes) {
  if (bytes < 0 || bytes > INT64_MAX / 2)
    return fail(Code::kUnavailable, "no device has so much memory");
  const int64_t wanted = rounded(bytes);
  PooledMemory memory;
  const auto found = free_.lower_bound(wanted);
  if (found != free_.end() && found->first <= 2 * wanted) {
    free_bytes_ -= found->first;
    memory.buffer_ = std::move(found->second);
    free_.erase(found);
  } else {
    TRY(memory.buffer_, DeviceBuffer::allocate(device_, wanted));
  }
  memory.pool_ = this;
  return memory;
}

void MemoryPool::trim(int64_t bytes) {
  while (free_bytes_ > bytes && !free_.empty()) {
    const auto largest = std::prev(free_.end());
    free_bytes_ -= largest->first;
    free_.erase(largest);
  }
}

void MemoryPool::take_back(DeviceBuffer buffer) {
  const int64_t bytes = buffer.bytes();
  free_bytes_ += bytes;
  free_.emplace(bytes, std::move(buffer));
}

}  // namespace kiln::runner
