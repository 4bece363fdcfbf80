#include "worker/runner/cpu/guarded_buffer.h"

#include <sys/mman.h>

#include <cstring>
#include <string>

#include "compiler_core/base/check.h"

namespace kiln::runner {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kFence = 1 << 20;  // address space only

// Never twice the same over a vector's width, and unlike the poison of outputs (verify.h).
uint8_t pattern(int64_t index) {
  return static_cast<uint8_t>(0xA5 ^ (index * 37));
}

int64_t round_up(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
}

}  // namespace

Result<GuardedBuffer> GuardedBuffer::allocate(int64_t bytes, int64_t skew) {
  CHECK(bytes >= 0 && skew >= 0 && skew < kPage && skew % 64 == 0, "a valid size and skew");
  const auto no_memory = [bytes] {
    return fail(Code::kUnavailable,
                "no memory for a buffer of " + std::to_string(bytes) + " bytes");
  };
  if (bytes > INT64_MAX / 2) return no_memory();
  GuardedBuffer buffer;
  const int64_t readable = round_up(kPage + skew + bytes + kPage, kPage);
  buffer.map_bytes_ = static_cast<size_t>(readable + 2 * kFence);
  void* map = ::mmap(nullptr, buffer.map_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return no_memory();
  buffer.map_ = static_cast<uint8_t*>(map);
  buffer.guard_begin_ = buffer.map_ + kFence;
  buffer.guard_end_ = buffer.guard_begin_ + readable;
  buffer.data_ = buffer.guard_begin_ + kPage + skew;
  buffer.bytes_ = bytes;
  if (::mprotect(buffer.guard_begin_, static_cast<size_t>(readable), PROT_READ | PROT_WRITE) != 0)
    return no_memory();
  buffer.repair();
  return buffer;
}

GuardedBuffer::GuardedBuffer(GuardedBuffer&& other) noexcept {
  *this = std::move(other);
}

GuardedBuffer& GuardedBuffer::operator=(GuardedBuffer&& other) noexcept {
  std::swap(map_, other.map_);
  std::swap(map_bytes_, other.map_bytes_);
  std::swap(guard_begin_, other.guard_begin_);
  std::swap(guard_end_, other.guard_end_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

GuardedBuffer::~GuardedBuffer() {
  if (map_ != nullptr) ::munmap(map_, map_bytes_);
}

void GuardedBuffer::fill(uint8_t value) const {
  std::memset(data_, value, static_cast<size_t>(bytes_));
}

std::optional<int64_t> GuardedBuffer::damage() const {
  const int64_t before = data_ - guard_begin_;
  const int64_t after = guard_end_ - data_;
  for (int64_t i = -1; i >= -before; --i)
    if (data_[i] != pattern(i)) return i;
  for (int64_t i = bytes_; i < after; ++i)
    if (data_[i] != pattern(i)) return i;
  return std::nullopt;
}

void GuardedBuffer::repair() const {
  for (uint8_t* p = guard_begin_; p < data_; ++p) *p = pattern(p - data_);
  for (uint8_t* p = data_ + bytes_; p < guard_end_; ++p) *p = pattern(p - data_);
}

}  // namespace kiln::runner
