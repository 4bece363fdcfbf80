// What was found damaged and set aside, for whoever wants to know what happened to the disk:
// databases as FILE.damaged.N beside their successors, blobs in blobs/quarantine. Nothing reads
// them, and no bound counts them; `kiln cache gc` removes those that are old enough.
#pragma once

#include "compiler_core/base/file.h"

namespace kiln {

// Beside the index: it was found damaged while it served, and is set aside at the next start.
inline constexpr char kDamageNote[] = "-damaged";

// Moves a database out of the way, with the files that belong to it; where to.
Result<Path> set_database_aside(const Path& file);

struct SetAside {
  int64_t files = 0, bytes = 0;
};
// Removes what was set aside in a store's directory before `before_ms` (wall clock); how much went.
SetAside remove_set_aside(const Path& directory, int64_t before_ms);

}  // namespace kiln
