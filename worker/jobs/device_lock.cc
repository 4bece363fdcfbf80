#include "worker/jobs/device_lock.h"

#include <chrono>
#include <thread>

namespace kiln {
namespace {

constexpr auto kPause = std::chrono::milliseconds(3);

}  // namespace

// flock() has no timeout, hence the pauses. Nobody starves: a worker compiles, then measures, so
// that those who hold the lock shared all come to want it exclusively.
Result<FileLock> lock_device(const Path& path, FileLock::Mode mode,
                             const std::function<bool()>& give_up) {
  for (;;) {
    auto lock = FileLock::try_acquire(path, mode);
    if (lock || lock.error().code != Code::kUnavailable) return lock;
    if (give_up()) return fail(Code::kUnavailable, "gave up waiting for " + path.string());
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace kiln
