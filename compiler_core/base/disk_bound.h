// DiskBound keeps the files below some folders within a size, for a cache that several processes
// share without a lock: when there is too much, the least recently used files are removed. A file's
// modification time is its last use: set when it is written, and moved on when it is used. A
// removed file is a miss for its readers. Thread-safe.
#pragma once

#include <atomic>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compiler_core/base/file.h"

namespace kiln {

class DiskBound {
 public:
  struct Options {
    // ".object": only files with this extension directly in the folders count and go. Empty: all.
    std::string extension{};
    int64_t used_again_s = 600;  // a use this soon after the last is not written down
  };
  // `max_bytes` 0: no bound.
  DiskBound(std::vector<Path> folders, int64_t max_bytes)
      : DiskBound(std::move(folders), max_bytes, {}) {}
  DiskBound(std::vector<Path> folders, int64_t max_bytes, Options options)
      : folders_(std::move(folders)), max_bytes_(max_bytes), options_(std::move(options)) {}

  // These were used together: the first goes first when none of them is used any more. Cheap when
  // the first one was used lately.
  void used(std::span<const Path> files) const;
  // These, of `bytes` in all, were just written or found. The first call, and each after a
  // twentieth of the bound was written, makes room.
  void written(std::span<const Path> files, int64_t bytes);

 private:
  static void stamp(std::span<const Path> files);
  void make_room() const;

  const std::vector<Path> folders_;
  const int64_t max_bytes_;
  const Options options_;
  std::mutex mu_;  // held by the one that makes room
  std::atomic<int64_t> unseen_bytes_{INT64_MAX / 2};
};

}  // namespace kiln
