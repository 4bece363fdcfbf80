// Readers: connections for reading. Each look-up borrows one, so that readers never wait for each
// other or for the writer. Thread-safe.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include "cache/index.h"

namespace kiln {

class Readers {
 public:
  explicit Readers(Path file) : file_(std::move(file)) {}

  // `read(CacheIndex&)` with a connection of its own.
  template <class Read>
  auto with(Read read) -> decltype(read(std::declval<CacheIndex&>())) {
    TRY(CacheIndex index, take());
    auto result = read(index);
    const std::scoped_lock lock(mu_);
    if (free_.size() < kMaxFree) free_.push_back(std::move(index));
    return result;
  }

 private:
  static constexpr size_t kMaxFree = 16;

  Result<CacheIndex> take() {
    {
      const std::scoped_lock lock(mu_);
      if (!free_.empty()) {
        CacheIndex index = std::move(free_.back());
        free_.pop_back();
        return index;
      }
    }
    return CacheIndex::open_for_reading(file_);
  }

  const Path file_;
  std::mutex mu_;
  std::vector<CacheIndex> free_;  // guarded by mu_
};

}  // namespace kiln
