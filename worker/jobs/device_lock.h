// DeviceLock: keeps measurements on a device quiet, whoever takes them on this host. Everybody who
// measures holds it exclusively, everybody whose work would disturb a measurement (on the CPU
// target: compiling) holds it shared. Released by the system when its process dies.
#pragma once

#include <functional>

#include "compiler_core/base/file.h"

namespace kiln {

// Waits for the lock, asking `give_up` now and then. kUnavailable when that says so; other errors:
// the file cannot be used as a lock.
Result<FileLock> lock_device(const Path& path, FileLock::Mode mode,
                             const std::function<bool()>& give_up);

}  // namespace kiln
