// Generation: how many coordinators this data directory has had. Workers outlive coordinators, and
// a result names a lease, so no life may use the lease ids of another. A wall clock cannot tell
// lives apart: it may be set back between two of them.
#pragma once

#include <cstdint>

#include "compiler_core/base/file.h"

namespace kiln {

// The first lease id and epoch of the life that begins: above every one an earlier life may have
// used, whatever `wall_us` (Unix time in microseconds) says. It is durable when this returns. Each
// life has 2^32. The clock counts only where there is no file yet: directories from before it, or
// without their past, began at the wall clock. kUnavailable: the directory cannot be written;
// kCorruption: the file is not ours.
// REQUIRES: the caller alone has the directory.
Result<uint64_t> first_lease_of_next_life(const Path& data_dir, uint64_t wall_us);

}  // namespace kiln
