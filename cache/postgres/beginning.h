// The beginning of a PostgresStore that writes: the tables are there and of this build's format, the
// term is this process's, and what was taken back so far is known.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cache/postgres/postgres_store.h"
#include "cache/postgres/term.h"

namespace kiln {

struct Beginning {
  std::unique_ptr<Term> term;
  std::vector<Revocation> revoked;
};

// Waits for the term as `options` say. A standby waits for PostgreSQL, too, when that is away as it
// starts or takes the term; others fail then. Errors as PostgresStore::open(). `name`: of its
// connections.
Result<Beginning> begin_writing(const std::string& url, const std::string& name,
                                const PostgresStoreOptions& options);

}  // namespace kiln
