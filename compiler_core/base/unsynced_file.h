// Files of caches: whole for whoever reads them, also after a crash of the process, but not durable.
// After a power failure one may be short or empty, so its reader must be able to tell, by a digest or
// a signature, and take that for a miss. What a process waits for when it starts up is written so: a
// sync takes milliseconds, and a program has dozens of files.
#pragma once

#include <string_view>

#include "compiler_core/base/file.h"

namespace kiln {

// As publish_file() without the syncs: temp file in the same directory, write, rename.
Status publish_unsynced(const Path& path, std::string_view bytes);

}  // namespace kiln
