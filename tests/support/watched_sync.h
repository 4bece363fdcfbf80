// fsync as a test sees it: which files and folders were synced, and a disk that refuses to sync one
// of them. Takes the place of libc's in the test program: one source file of it includes this.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <string>
#include <vector>

#include "compiler_core/base/file.h"

namespace kiln::testing {

class WatchedSync {
 public:
  static WatchedSync& instance() {
    static WatchedSync watched;
    return watched;
  }
  // Syncs of `path` fail from now on; an empty one: none does.
  void refuse(const Path& path) {
    const std::lock_guard lock(mutex_);
    refused_ = path;
    synced_.clear();
  }
  // Since the last refuse().
  bool synced(const Path& path) const {
    const std::lock_guard lock(mutex_);
    return std::find(synced_.begin(), synced_.end(), path) != synced_.end();
  }
  int sync(int fd) {
    std::error_code ignored;
    const Path path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), ignored);
    {
      const std::lock_guard lock(mutex_);
      if (!refused_.empty() && path == refused_) {
        errno = EIO;
        return -1;
      }
      synced_.push_back(path);
    }
    return static_cast<int>(::syscall(SYS_fsync, fd));
  }

 private:
  mutable std::mutex mutex_;
  Path refused_;  // guarded by mutex_
  std::vector<Path> synced_;
};

}  // namespace kiln::testing

extern "C" int fsync(int fd) {
  return kiln::testing::WatchedSync::instance().sync(fd);
}
