// AlignedBuffer: plain memory for arenas, workspaces and scratch: 64-byte aligned, not initialised,
// on huge pages where it is large and the system has them. One owner; contents are nobody's.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "compiler_core/base/result.h"

namespace kiln {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // Grows to at least `bytes`; what was in it is lost when it grows. kUnavailable when there is no
  // such memory; then it is empty. REQUIRES: bytes >= 0.
  Status reserve(int64_t bytes);
  // Null while nothing was reserved.
  void* data() const { return memory_.get(); }
  int64_t size() const { return size_; }
  // The memory, which the caller frees; this is empty then.
  void* take() {
    size_ = 0;
    return memory_.release();
  }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  int64_t size_ = 0;
};

}  // namespace kiln
