#include "tests/support/fake_cuda/guarded_memory.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <cstring>

namespace kiln::testing {
namespace {
constexpr size_t kPage = 4096;
constexpr size_t kGuardPages = 16384;  // on each side: 64 MiB of addresses, which cost nothing
}  // namespace

GuardedMemory GuardedMemory::make(const Layout& layout) {
  const auto [bytes, alignment, at_start, pattern] = layout;
  GuardedMemory memory;
  // One alignment more than is needed leaves room to step to an odd multiple.
  const size_t padded = (bytes + alignment - 1) / alignment * alignment + alignment;
  const size_t inner = (padded + kPage - 1) / kPage * kPage;
  memory.mapped_ = inner + 2 * kGuardPages * kPage;
  void* base = ::mmap(nullptr, memory.mapped_, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return {};
  memory.base_ = static_cast<uint8_t*>(base);
  uint8_t* const start = memory.base_ + kGuardPages * kPage;
  if (::mprotect(start, inner, PROT_READ | PROT_WRITE) != 0) return {};
  memory.data_ = at_start ? start : start + inner - padded + alignment;
  if (reinterpret_cast<uintptr_t>(memory.data_) / alignment % 2 == 0 && alignment < kPage)
    memory.data_ += at_start ? alignment : -alignment;
  memory.bytes_ = bytes;
  memory.pattern_ = pattern;
  std::memset(start, pattern, static_cast<size_t>(memory.data_ - start));
  uint8_t* const end = memory.data_ + bytes;
  std::memset(end, pattern, static_cast<size_t>(start + inner - end));
  return memory;
}

GuardedMemory& GuardedMemory::operator=(GuardedMemory&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_, other.mapped_);
  std::swap(pattern_, other.pattern_);
  return *this;
}

GuardedMemory::~GuardedMemory() {
  if (base_ != nullptr) ::munmap(base_, mapped_);
}

std::string GuardedMemory::damage() const {
  if (data_ == nullptr) return "";
  const uint8_t* end = base_ + mapped_ - kGuardPages * kPage;
  for (const uint8_t* p = data_; p-- > base_ + kGuardPages * kPage;)
    if (*p != pattern_) return fmt::format("{} bytes before the start", data_ - p);
  for (const uint8_t* p = data_ + bytes_; p < end; ++p)
    if (*p != pattern_)
      return fmt::format("byte {} past the end", p - data_ - static_cast<ptrdiff_t>(bytes_));
  return "";
}

bool GuardedMemory::is_near(const void* address) const {
  const auto* p = static_cast<const uint8_t*>(address);
  return base_ != nullptr && p >= base_ && p < base_ + mapped_;
}

}  // namespace kiln::testing
