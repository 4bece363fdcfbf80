// Generation: counts the incarnations of the coordinator on a data directory. Workers outlive
// coordinators and a result names a lease, so no incarnation may reuse another's lease ids. A wall
// clock cannot tell incarnations apart: it may be set back between two of them.
#pragma once

#include <cstdint>

#include "compiler_core/base/file.h"

namespace kiln {

// The first lease id and epoch of the incarnation that begins, above every one that an earlier
// incarnation may have used; durable when this returns. Each incarnation has 2^32 of them.
// `wall_us` (Unix time in microseconds) counts only where there is no file yet: directories without
// the file used the wall clock. kUnavailable: the directory cannot be written; kCorruption: the
// file is not ours. REQUIRES: the caller alone has the directory.
Result<uint64_t> first_lease_of_next_incarnation(const Path& data_dir, uint64_t wall_us);

}  // namespace kiln
