// Whether a database file is sound, by SQLite's own check: the difference between one that is
// damaged, which is set aside, and one that the disk would not give just now, which is not.
#pragma once

#include "cache/sqlite.h"

namespace kiln {

// Reads it through. kCorruption, with what is wrong, when it can be read and is unsound each time;
// kUnavailable when it cannot be read.
Status check_soundness(Database& db);

}  // namespace kiln
