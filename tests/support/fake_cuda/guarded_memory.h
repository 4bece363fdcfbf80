// GuardedMemory: memory between pages that cannot be touched. It ends less than `alignment` bytes
// before the last of them; what lies between is filled with a pattern and can be checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace kiln::testing {

class GuardedMemory {
 public:
  static constexpr uint8_t kPoison = 0xa5;

  GuardedMemory() = default;
  // Zeros, or poison. data() is a multiple of `alignment` (a power of two up to a page) and, below
  // a page, of no more, so that code which assumes more is found out. null when there is no memory.
  static GuardedMemory zeros(size_t bytes, size_t alignment);
  static GuardedMemory poison(size_t bytes, size_t alignment);
  GuardedMemory(GuardedMemory&& other) noexcept { *this = std::move(other); }
  GuardedMemory& operator=(GuardedMemory&& other) noexcept;
  ~GuardedMemory();

  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // "" or where something was written between the memory and its pages: "byte 3 past the end".
  std::string damage() const;
  // Where `address` is, seen from here: its distance from data(). Whether it is closer than
  // the pages on either side reach.
  bool is_near(const void* address) const;

 private:
  static GuardedMemory map(size_t bytes, size_t alignment);
  uint8_t* base_ = nullptr;
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0, mapped_ = 0;
};

}  // namespace kiln::testing
