#include "tests/support/fake_cuda/libraries/fake_device.h"

#include <thread>

namespace kiln::testing {

FakeDevice& FakeDevice::instance() {
  static FakeDevice& only = *new FakeDevice;
  return only;
}

void FakeDevice::run() {
  for (std::unique_lock lock(mutex_);;) {
    changed_.wait(lock, [this] { return !queue_.empty(); });
    const Work work = std::move(queue_.front());
    queue_.pop_front();
    if (error_ == CUDA_SUCCESS) {
      lock.unlock();
      const CUresult result = work();
      lock.lock();
      if (result != CUDA_SUCCESS) error_ = result;
    }
    ++done_;
    changed_.notify_all();
  }
}

uint64_t FakeDevice::submit(Work work) {
  const std::lock_guard lock(mutex_);
  if (!started_) std::thread([this] { run(); }).detach();
  started_ = true;
  queue_.push_back(std::move(work));
  changed_.notify_all();
  return ++submitted_;
}

bool FakeDevice::is_done(uint64_t number) {
  const std::lock_guard lock(mutex_);
  return done_ >= number;
}

CUresult FakeDevice::wait(uint64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= number; });
  return error_;
}

CUresult FakeDevice::wait_for_all() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&, number = submitted_] { return done_ >= number; });
  return error_;
}

CUresult FakeDevice::error() {
  const std::lock_guard lock(mutex_);
  return error_;
}

void FakeDevice::retain() {
  const std::lock_guard lock(mutex_);
  ++references_;
}

void FakeDevice::release() {
  std::unique_lock lock(mutex_);
  if (references_ == 0 || --references_ > 0) return;
  changed_.wait(lock, [this] { return done_ == submitted_; });
  memory_.clear();
  used_bytes_ = 0;
  error_ = CUDA_SUCCESS;
}

bool FakeDevice::has_context() {
  const std::lock_guard lock(mutex_);
  return references_ > 0;
}

CUresult FakeDevice::allocate(size_t bytes, CUdeviceptr* memory) {
  const std::lock_guard lock(mutex_);
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > static_cast<size_t>(kMemoryBytes) - used_bytes_) return CUDA_ERROR_OUT_OF_MEMORY;
  GuardedMemory block = GuardedMemory::make({bytes, 256});
  if (block.data() == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  used_bytes_ += bytes;
  *memory = reinterpret_cast<CUdeviceptr>(block.data());
  memory_.emplace(*memory, std::move(block));
  return CUDA_SUCCESS;
}

CUresult FakeDevice::free(CUdeviceptr memory) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&, number = submitted_] { return done_ >= number; });
  const auto found = memory_.find(memory);
  if (found == memory_.end()) return CUDA_ERROR_INVALID_VALUE;
  used_bytes_ -= found->second.bytes();
  memory_.erase(found);
  return error_;
}

size_t FakeDevice::free_bytes() {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(kMemoryBytes) - used_bytes_;
}

bool FakeDevice::owns(CUdeviceptr memory, size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto next = memory_.upper_bound(memory);
  if (next == memory_.begin()) return false;
  const auto& [start, block] = *std::prev(next);
  return bytes <= block.bytes() && memory - start <= block.bytes() - bytes;
}

}  // namespace kiln::testing
