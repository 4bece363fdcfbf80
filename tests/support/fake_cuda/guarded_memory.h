// GuardedMemory: memory between 64 MiB of pages that cannot be touched, so that a wrong index does
// not end in somebody else's memory, and less than twice `alignment` away from one of them; what
// lies between is filled with a pattern and can be checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace kiln::testing {

class GuardedMemory {
 public:
  struct Layout {
    size_t bytes = 0;
    // data() is a multiple of it (a power of two up to a page) and, below a page, of no more, so
    // that code which assumes more is found out.
    size_t alignment = 16;
    bool at_start = false;   // close to the pages before it, not to those behind
    uint8_t pattern = 0xa5;  // between memory and pages
  };

  GuardedMemory() = default;
  // Zeros. data() is null when there is no memory.
  static GuardedMemory make(const Layout& layout);
  GuardedMemory(GuardedMemory&& other) noexcept { *this = std::move(other); }
  GuardedMemory& operator=(GuardedMemory&& other) noexcept;
  ~GuardedMemory();

  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // "" or where something was written between the memory and its pages: "byte 3 past the end".
  std::string damage() const;
  // In the memory or in the pages on either side.
  bool is_near(const void* address) const;

 private:
  uint8_t* base_ = nullptr;
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0, mapped_ = 0;
  uint8_t pattern_ = 0;
};

}  // namespace kiln::testing
