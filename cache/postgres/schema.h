// The tables of a PostgresStore (schema.cc documents them), in a namespace `kiln` of their own, so
// that a database may hold other things. A change goes in three steps, each with a release between:
// add what is new, write both, drop what is old; `meta` says which builds may read and write.
#pragma once

#include "cache/postgres/connection.h"

namespace kiln {

inline constexpr int kPostgresSchema = 1;

// Creates the tables where there are none. kUnsupported, with what to do, where this build is too old
// to write what is there or too new; kUnavailable.
Status prepare_postgres_schema(PgConnection& connection);

}  // namespace kiln
