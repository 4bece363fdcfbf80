// The tables of index.sqlite: their format, its version, and how a file of an older one is brought
// up to date. index_schema.cc documents the format.
#pragma once

#include "cache/sqlite.h"

namespace kiln {

// Creates the tables in an empty file, and migrates those of an older version, in one transaction.
// kUnsupported when a newer Kiln wrote it. `now_ms`: the last use of what has none on record.
Status prepare_schema(Database& db, int64_t now_ms);
// kUnsupported unless it is of this build's version: for those who only read.
Status check_schema(Database& db);

}  // namespace kiln
