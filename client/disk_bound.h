// DiskBound: keeps the files below some folders within a size, for a cache that several processes
// share without a lock: when there is too much, the files that were used longest ago are removed.
// When a file was used is its modification time, which says what is needed here: it is set when the
// file is written and moved on when it is used. What nobody finds any more is a miss. Thread-safe.
#pragma once

#include <atomic>
#include <mutex>
#include <span>
#include <vector>

#include "compiler_core/base/file.h"

namespace kiln {

class DiskBound {
 public:
  // `max_bytes` 0: no bound.
  DiskBound(std::vector<Path> folders, int64_t max_bytes)
      : folders_(std::move(folders)), max_bytes_(max_bytes) {}

  // These were used together: the first is the first to go when none of them is used any more.
  // Cheap when they were used lately: the first one's time decides.
  void used(std::span<const Path> files) const;
  // The same of files that were just written, or found there, of so many bytes. The first time, and
  // whenever much was written since, makes room.
  void written(std::span<const Path> files, int64_t bytes);

 private:
  static void stamp(std::span<const Path> files);
  void make_room() const;

  const std::vector<Path> folders_;
  const int64_t max_bytes_;
  std::mutex mu_;  // one at a time makes room
  std::atomic<int64_t> unseen_bytes_{INT64_MAX / 2};
};

}  // namespace kiln
