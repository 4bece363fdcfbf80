// GuardedBuffer: memory lent to a kernel that is not trusted yet.
//
//   | fence | guard: >= 4 KiB of pattern | data | guard: >= 4 KiB of pattern | fence |
//
// A write near the data changes the pattern and is found by damage(); one farther away hits a fence
// (1 MiB that nobody may touch) and kills the runner instead of corrupting it. The pattern depends
// on the position, so that a kernel that stores one value everywhere cannot hide. The guard behind
// begins at the very next byte. Owns its mapping; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "compiler_core/base/result.h"

namespace kiln::runner {

class GuardedBuffer {
 public:
  // `skew` (a multiple of 64, below a page) moves the data off the page boundary, so that buffers
  // that are used together do not all compete for the same cache sets. kUnavailable: no memory.
  static Result<GuardedBuffer> allocate(int64_t bytes, int64_t skew);
  GuardedBuffer(GuardedBuffer&& other) noexcept;
  GuardedBuffer& operator=(GuardedBuffer&& other) noexcept;
  ~GuardedBuffer();

  void* data() const { return data_; }  // 64-byte aligned
  std::span<uint8_t> bytes() const { return {data_, static_cast<size_t>(bytes_)}; }
  void fill(uint8_t value) const;  // all of data

  // Where the nearest overwritten guard byte is, counted from data(): negative, or >= bytes.
  std::optional<int64_t> damage() const;
  void repair() const;  // writes the pattern anew

 private:
  GuardedBuffer() = default;
  uint8_t* map_ = nullptr;  // whole mapping
  size_t map_bytes_ = 0;
  uint8_t* guard_begin_ = nullptr;  // the readable part
  uint8_t* guard_end_ = nullptr;
  uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace kiln::runner
