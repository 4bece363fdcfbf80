// What publish_file leaves when its process is killed in the middle: a temporary file that nobody
// will ever rename. Caches that several processes share sweep it up with this.
#pragma once

#include "compiler_core/base/file.h"

namespace kiln {

// Removes from `directory` (not below it) the temporary files of publish_file whose process is
// gone, or that are older than an hour. Where other hosts write there too, a file in the making may
// be taken for one: its publish then fails, as on a full disk. Errors are nobody's concern.
void remove_unpublished(const Path& directory);

}  // namespace kiln
