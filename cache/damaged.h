// Damaged databases: how they are distinguished from databases that the disk does not give just
// now, and what becomes of them. A damaged database is renamed to FILE.damaged.N beside its
// successor, a damaged blob moved to blobs/quarantine, as evidence of what happened to the disk.
// Nothing reads them and no bound counts them; `kiln cache gc` removes those that are old enough.
#pragma once

#include "cache/sqlite.h"

namespace kiln {

// Reads the database through. kCorruption, with the reason, when it can be read and is unsound each
// time; kUnavailable when it cannot be read.
Status check_soundness(Database& db);

// The suffix of a note beside the index, written when the index is found damaged while it serves:
// the next start sets it aside.
inline constexpr char kDamageNote[] = "-damaged";

// Moves a database out of the way, with the files that belong to it. Returns where to.
Result<Path> set_database_aside(const Path& file);

struct SetAside {
  int64_t files = 0, bytes = 0;
};
// Removes the damaged files that a store's directory has kept since before `before_ms` (wall
// clock). Returns how much that was.
SetAside remove_set_aside(const Path& directory, int64_t before_ms);

}  // namespace kiln
