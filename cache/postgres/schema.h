// The tables of a PostgresStore (schema.cc documents them), in a namespace `kiln` of their own, so
// that a database may hold other things. Their format is a number, and changes while builds of
// before and after write the same database: a release adds what is new and writes old and new, a
// later one drops what is old. `meta` says which builds may still read and write.
//
// A coordinator that may write brings the tables up to its own format, also while another one leads.
// Some steps are not for earlier builds to write behind: such a step ends every term, so that their
// writers stop at their next transaction, and are refused when they come again.
#pragma once

#include <vector>

#include "cache/postgres/connection.h"

namespace kiln {

inline constexpr int kPostgresSchema = 3;

struct SchemaStep {
  // The oldest formats whose builds may read and write what it makes.
  int min_reader = 1, min_writer = 1;
  std::vector<const char*> statements;
};

// The formats that a build knows: steps[n] makes format n + 1 of the one before, the first one of nothing.
struct SchemaFormats {
  std::vector<SchemaStep> steps;
  int oldest = 1;  // a database of a format before it is a matter of the release between them

  int own() const { return static_cast<int>(steps.size()); }
};
const SchemaFormats& postgres_formats();  // this build's

// For who may write: creates the tables where there are none, and brings them up to date.
// kUnsupported, with what to do, where this build is too old to write what is there or too new;
// kUnavailable, also where the database is a standby whose tables are of before.
Status prepare_postgres_schema(PgConnection& connection,
                               const SchemaFormats& known = postgres_formats());

// Whether builds of this format may read what is there, and write it. Errors as above; kNotFound:
// there are no tables.
enum class SchemaUse { kRead, kWrite };
Status check_postgres_schema(PgConnection& connection, SchemaUse use,
                             const SchemaFormats& known = postgres_formats());

}  // namespace kiln
