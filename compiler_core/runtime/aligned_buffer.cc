#include "compiler_core/runtime/aligned_buffer.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>

#include "compiler_core/base/check.h"

namespace kiln {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kAddressSpace = int64_t{1} << 46;  // of a process, about

}  // namespace

Status AlignedBuffer::reserve(int64_t bytes) {
  CHECK(bytes >= 0, "sizes come from a checked recipe or program");
  if (bytes <= size_) return {};
  const int64_t alignment = bytes >= kHugePage ? kHugePage : kLine;
  const int64_t rounded = (std::min(bytes, kAddressSpace) + alignment - 1) / alignment * alignment;
  memory_.reset();  // first, so that old and new never exist together
  size_ = 0;
  if (bytes < kAddressSpace)
    memory_.reset(std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(rounded)));
  if (memory_ == nullptr)
    return fail(Code::kUnavailable, fmt::format("no memory for {} bytes", bytes));
  size_ = rounded;
  // Packed panels are read with large strides: fewer TLB misses. Refusal costs nothing.
  if (alignment == kHugePage) ::madvise(memory_.get(), static_cast<size_t>(rounded), MADV_HUGEPAGE);
  return {};
}

}  // namespace kiln
