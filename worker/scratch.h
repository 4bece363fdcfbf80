// Scratch: a directory for everything a worker writes on its way, that does not outlive the worker,
// even when that is killed with -9: a small child process waits for its end, kills whoever still
// works in the directory (compilers, which the system does not end with us) and removes it.
#pragma once

#include "compiler_core/base/file.h"

namespace kiln {

class Scratch {
 public:
  // Forks, so it comes before any thread.
  static Result<Scratch> create();
  Scratch(Scratch&& other) noexcept : dir_(std::move(other.dir_)), alive_(other.alive_) {
    other.alive_ = -1;
  }
  ~Scratch();
  const Path& path() const { return dir_.path(); }
  void evict() const;  // kills the processes that work there now

 private:
  Scratch(TempDir dir, int alive) : dir_(std::move(dir)), alive_(alive) {}
  TempDir dir_;
  int alive_;  // our end of a pipe; the child reads its end as ours
};

}  // namespace kiln
