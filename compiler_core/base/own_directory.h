// Directories whose content decides what this process loads, waits for or believes: caches, data,
// locks, scratch. Only their owner and root may write there, at any umask. Free functions;
// thread-safe.
#pragma once

#include "compiler_core/base/file.h"

namespace kiln {

// Whether only root and this process's user decide what lies in `directory`, where it stands. In
// the folders above it others may write if they cannot move what is not theirs (/tmp). Links on the
// way are followed if nobody else can point them elsewhere. kPermissionDenied names the folder or
// link that is another user's, or that others may write in.
Status check_ours(const Path& directory);

// Makes `directory`, for this user alone (mode 0700), if it is not there. kPermissionDenied unless
// it is a directory of this user's, and no link to one, which check_ours() takes.
Status make_private_directory(const Path& directory);

// The processes that hold a lock (FileLock) on `file`, for people: "pid 123 (kiln-worker)". Empty:
// none that this process can see.
std::string lock_holders(const Path& file);

}  // namespace kiln
