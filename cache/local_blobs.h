// LocalBlobs: copies of binaries on this machine's disk, in front of a store that is far: a bounded
// folder, the least recently used go. A copy is read back with its digest checked, and a damaged one
// is removed, so that what it gives is right whatever happened to the disk; what it lacks costs a way
// to the store. Thread-safe.
#pragma once

#include <atomic>
#include <string_view>

#include "compiler_core/base/digest.h"
#include "compiler_core/base/disk_bound.h"

namespace kiln {

class LocalBlobs {
 public:
  // `folder`: this process's alone. `max_bytes`: 0: nothing is kept.
  LocalBlobs(Path folder, int64_t max_bytes)
      : folder_(std::move(folder)), max_bytes_(max_bytes), bound_({folder_}, max_bytes) {}

  // kNotFound: it is not here.
  Result<std::string> get(const Digest& digest);
  // A full disk keeps nothing, and is no error. REQUIRES: the bytes have this digest.
  void keep(const Digest& digest, std::string_view bytes);

  void clear();

  int64_t hits() const { return hits_; }

 private:
  const Path folder_;
  const int64_t max_bytes_;
  DiskBound bound_;
  std::atomic<uint64_t> written_{0};
  std::atomic<int64_t> hits_{0};
};

}  // namespace kiln
