// The reads of a PostgresStore outside of its writer, each one statement on the connection that it is
// given. Rows that do not match their seal are kCorruption, or left out of lists.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "cache/postgres/connection.h"
#include "cache/postgres/postgres_index.h"
#include "cache/store.h"

namespace kiln::reads {

// The programs that are stored, by key; kNotFound for one that lacks a blob.
Result<std::map<Digest, Result<StoredProgram>>> programs(PgConnection& connection,
                                                         const std::vector<Digest>& keys);
// The objects of live blobs.
Result<std::map<Digest, std::string>> objects(PgConnection& connection,
                                              const std::vector<Digest>& blobs);

// `listed`: also one whose blob is gone.
Result<StoredKernel> kernel(PgConnection& connection, const Digest& key, bool listed);
Result<std::vector<TuningRecord>> records(PgConnection& connection, const Digest& kernel_key);
Result<std::vector<Schedule>> earlier_winners(PgConnection& connection, const Digest& workload);
Result<std::vector<Schedule>> nearest_winners(PgConnection& connection, const ShapeGenericKey& key);
Result<std::vector<Revocation>> revocations(PgConnection& connection);
Result<ListedProgram> listed_program(PgConnection& connection, const Digest& key);
Result<ProgramList> list_programs(PgConnection& connection, const ProgramQuery& wanted);
// The keys whose rows are stored and match their seals, also where a blob is gone.
Result<std::set<Digest>> whole_programs(PgConnection& connection, const std::vector<Digest>& keys);
Result<std::set<Digest>> whole_kernels(PgConnection& connection, const std::vector<Digest>& keys);
Result<RecordList> list_records(PgConnection& connection, const RecordQuery& wanted);
Result<bool> has_acts(PgConnection& connection);  // since format 2
Result<std::vector<AdminAct>> acts(PgConnection& connection, int64_t before, int64_t limit);
Result<PostgresIndex::Totals> totals(PgConnection& connection);

// For reading all of it: records after `after_id` in their order, without those that do not match
// their seals, which count.
struct RecordPage {
  int64_t rows = 0, last_id = 0;
  std::vector<TuningRecord> good;
};
Result<RecordPage> record_page(PgConnection& connection, int64_t after_id, int64_t limit);
// The objects of blobs, of doomed ones too, which stay for a while.
Result<std::map<Digest, std::string>> object_names(PgConnection& connection,
                                                   const std::vector<Digest>& blobs);

// Blobs that are going: their objects are to be removed, then their rows. Neither needs a term, since
// their names are dead.
struct Going {
  Digest digest;
  std::string object;
};
Result<std::vector<Going>> going(PgConnection& connection, int limit);
Status forget_removed(PgConnection& connection, const Going& gone);

}  // namespace kiln::reads
