#include "cache/postgres/reads.h"

#include <fmt/core.h>

#include "cache/sealed_rows.h"

namespace kiln::reads {
namespace {

constexpr int64_t kHourMs = 3'600'000;

// In the order of read_record().
constexpr char kRecordColumns[] =
    "workload, target, schedule, verdict, log, samples, binary_digest, worker, taken_at_ms, seed,"
    " sentinel_us, template_version, owner, seal";

Result<StoredProgram> read_program(const PgRows& rows, int64_t row, const Digest& key) {
  const std::string_view manifest = rows.bytes(row, 1), audience = rows.bytes(row, 3);
  const auto seal = rows.digest(row, 4);
  if (!seal || *seal != seal_program(key, manifest, rows.bytes(row, 2), audience))
    return damaged("program", key);
  if (rows.boolean(row, 5))
    return fail(Code::kNotFound, fmt::format("program {} lacks a blob", key.short_hex()));
  return StoredProgram{std::string(manifest), Audience::parse(audience)};
}

Result<TuningRecord> read_record(const PgRows& rows, int64_t row, const Digest& kernel_key) {
  TuningRecord record;
  record.kernel_key = kernel_key;
  TRY(record.workload, rows.digest(row, 0));
  TRY(record.target, target_from_text(rows.bytes(row, 1)));
  TRY(record.schedule, Schedule::parse(rows.bytes(row, 2)));
  record.verdict = static_cast<Verdict>(rows.integer(row, 3));
  record.log = rows.bytes(row, 4);
  record.measurement.samples_us = samples_in(rows.bytes(row, 5));
  TRY(record.binary, rows.digest(row, 6));
  record.worker = rows.bytes(row, 7);
  record.taken_at_ms = rows.integer(row, 8);
  record.seed = static_cast<uint64_t>(rows.integer(row, 9));
  record.sentinel_us = rows.real(row, 10);
  record.template_version = static_cast<int>(rows.integer(row, 11));
  record.owner = rows.bytes(row, 12);
  TRY(const Digest seal, rows.digest(row, 13));
  return check_record(std::move(record), seal);
}

const char* order_of(ProgramQuery::Order order) {
  switch (order) {
    case ProgramQuery::Order::kLatestUse:
      return "used_hour DESC, key";
    case ProgramQuery::Order::kOldestUse:
      return "used_hour, key";
    case ProgramQuery::Order::kSize:
      return "bytes DESC, key";
  }
  return "key";
}

Result<ListedProgram> listed(const PgRows& rows, int64_t row) {
  ListedProgram program;
  TRY(program.key, rows.digest(row, 0));
  program.manifest = rows.bytes(row, 1);
  program.bytes = rows.integer(row, 2);
  program.used_ms = rows.integer(row, 3) * kHourMs;
  program.pinned = rows.boolean(row, 4);
  return program;
}

}  // namespace

Result<std::map<Digest, Result<StoredProgram>>> programs(PgConnection& connection,
                                                         const std::vector<Digest>& keys) {
  TRY(const PgRows rows,
      connection.run("SELECT key, manifest, blobs, audience, seal, EXISTS (SELECT FROM"
                     " program_blobs n JOIN blobs b ON b.digest = n.digest WHERE n.program ="
                     " programs.key AND b.state <> 'L') FROM programs WHERE key = ANY($1)",
                     PgValues().add(keys)));
  std::map<Digest, Result<StoredProgram>> found;
  for (int64_t row = 0; row < rows.size(); ++row) {
    TRY(const Digest key, rows.digest(row, 0));
    found.emplace(key, read_program(rows, row, key));
  }
  return found;
}

namespace {

Result<std::map<Digest, std::string>> objects_where(PgConnection& connection, const char* sql,
                                                    const std::vector<Digest>& blobs) {
  TRY(const PgRows rows, connection.run(sql, PgValues().add(blobs)));
  std::map<Digest, std::string> found;
  for (int64_t row = 0; row < rows.size(); ++row) {
    TRY(const Digest digest, rows.digest(row, 0));
    found[digest] = rows.bytes(row, 1);
  }
  return found;
}

}  // namespace

Result<std::map<Digest, std::string>> objects(PgConnection& connection,
                                              const std::vector<Digest>& blobs) {
  return objects_where(
      connection, "SELECT digest, object FROM blobs WHERE digest = ANY($1) AND state = 'L'", blobs);
}

Result<std::map<Digest, std::string>> object_names(PgConnection& connection,
                                                   const std::vector<Digest>& blobs) {
  return objects_where(
      connection, "SELECT digest, object FROM blobs WHERE digest = ANY($1) AND state IN ('L', 'D')",
      blobs);
}

Result<StoredKernel> kernel(PgConnection& connection, const Digest& key, bool listed) {
  TRY(const PgRows rows, connection.run("SELECT kernel, target, seal, b.state = 'L' FROM kernels"
                                        " JOIN blobs b ON b.digest = blob WHERE key = $1",
                                        PgValues().add(key)));
  if (rows.size() == 0) return fail(Code::kNotFound, "no kernel " + key.short_hex());
  const auto seal = rows.digest(0, 2);
  if (!seal) return damaged("kernel", key);
  TRY(StoredKernel stored, read_kernel(key, rows.bytes(0, 0), rows.bytes(0, 1), *seal));
  if (!listed && !rows.boolean(0, 3))
    return fail(Code::kNotFound, fmt::format("kernel {} lacks its blob", key.short_hex()));
  return stored;
}

Result<std::set<Digest>> whole_programs(PgConnection& connection, const std::vector<Digest>& keys) {
  TRY(const auto found, programs(connection, keys));
  std::set<Digest> whole;
  for (const auto& [key, row] : found)
    if (row || row.error().code == Code::kNotFound) whole.insert(key);
  return whole;
}

Result<std::set<Digest>> whole_kernels(PgConnection& connection, const std::vector<Digest>& keys) {
  TRY(const PgRows rows,
      connection.run("SELECT key, kernel, target, seal FROM kernels WHERE key = ANY($1)",
                     PgValues().add(keys)));
  std::set<Digest> whole;
  for (int64_t row = 0; row < rows.size(); ++row) {
    TRY(const Digest key, rows.digest(row, 0));
    const auto seal = rows.digest(row, 3);
    if (seal && read_kernel(key, rows.bytes(row, 1), rows.bytes(row, 2), *seal)) whole.insert(key);
  }
  return whole;
}

Result<std::vector<TuningRecord>> records(PgConnection& connection, const Digest& kernel_key) {
  TRY(const PgRows rows,
      connection.run(
          fmt::format("SELECT {} FROM records WHERE kernel_key = $1 ORDER BY id", kRecordColumns)
              .c_str(),
          PgValues().add(kernel_key)));
  std::vector<TuningRecord> records;
  for (int64_t row = 0; row < rows.size(); ++row)
    if (auto record = read_record(rows, row, kernel_key)) records.push_back(*std::move(record));
  return records;
}

Result<RecordPage> record_page(PgConnection& connection, int64_t after_id, int64_t limit) {
  TRY(const PgRows rows,
      connection.run(
          fmt::format("SELECT {}, id, kernel_key FROM records WHERE id > $1 ORDER BY id LIMIT $2",
                      kRecordColumns)
              .c_str(),
          PgValues().add(after_id).add(limit)));
  RecordPage page;
  page.rows = rows.size();
  for (int64_t row = 0; row < rows.size(); ++row) {
    page.last_id = rows.integer(row, 14);
    const auto kernel_key = rows.digest(row, 15);
    auto record = kernel_key ? read_record(rows, row, *kernel_key) : fail(kernel_key.error());
    if (record) page.good.push_back(*std::move(record));
  }
  return page;
}

Result<std::vector<Schedule>> earlier_winners(PgConnection& connection, const Digest& workload) {
  TRY(const PgRows rows,
      connection.run("SELECT schedule FROM winners WHERE workload = $1 ORDER BY id DESC",
                     PgValues().add(workload)));
  std::vector<Schedule> schedules;
  for (int64_t row = 0; row < rows.size(); ++row)
    // A schedule that this build no longer knows is no use as a first candidate.
    if (auto schedule = Schedule::parse(rows.bytes(row, 0)))
      schedules.push_back(*std::move(schedule));
  return schedules;
}

Result<std::vector<Schedule>> nearest_winners(PgConnection& connection,
                                              const ShapeGenericKey& key) {
  TRY(const PgRows rows,
      connection.run("SELECT schedule, sizes FROM kin JOIN winners USING (workload)"
                     " WHERE kin = $1 ORDER BY id DESC LIMIT 256",
                     PgValues().add(key.digest)));
  std::vector<WinnerOfSizes> winners;
  for (int64_t row = 0; row < rows.size(); ++row)
    winners.push_back({sizes_in(rows.bytes(row, 1)), std::string(rows.bytes(row, 0))});
  return nearest_first(winners, key.sizes);
}

Result<std::vector<Revocation>> revocations(PgConnection& connection) {
  TRY(const PgRows rows,
      connection.run("SELECT kind, key, through, at_ms FROM revoked ORDER BY id"));
  std::vector<Revocation> all;
  for (int64_t row = 0; row < rows.size(); ++row) {
    TRY(const Digest key, rows.digest(row, 1));
    all.push_back({static_cast<Revocation::Kind>(rows.integer(row, 0)), key, rows.integer(row, 2),
                   rows.integer(row, 3)});
  }
  return all;
}

Result<ListedProgram> listed_program(PgConnection& connection, const Digest& key) {
  TRY(const PgRows rows, connection.run("SELECT key, manifest, bytes, used_hour, pinned"
                                        " FROM programs WHERE key = $1 AND audience = ''",
                                        PgValues().add(key)));
  if (rows.size() == 0) return fail(Code::kNotFound, "no program " + key.short_hex());
  return listed(rows, 0);
}

Result<RecordList> list_records(PgConnection& connection, const RecordQuery& wanted) {
  std::vector<Digest> kernels;
  if (wanted.program) {
    TRY(const ListedProgram row, listed_program(connection, *wanted.program));
    TRY(const Program program, program_from_json(row.manifest));
    for (const ProgramKernel& kernel : program.kernels) kernels.push_back(kernel.key);
  }
  TRY(RecordPage page, record_page(connection, wanted.after, wanted.limit));
  RecordList list;
  list.last_id = page.last_id;
  list.damaged = page.rows - std::ssize(page.good);
  list.records = fitting(wanted, std::move(page.good), kernels,
                         [&](const Digest& key) -> std::optional<std::string> {
                           const auto stored = kernel(connection, key, true);
                           if (!stored) return std::nullopt;
                           return stored->kernel.schedule;
                         });
  return list;
}

// A search reads so many manifests at most, in that order; a list, what it shows.
Result<ProgramList> list_programs(PgConnection& connection, const ProgramQuery& wanted) {
  ProgramList list;
  const bool searches = !wanted.text.empty();
  const std::string some =
      fmt::format("SELECT * FROM programs WHERE pinned OR NOT $1 ORDER BY {} LIMIT $2 OFFSET $3",
                  order_of(wanted.order));
  const PgValues bounds = PgValues()
                              .add(wanted.pinned_only)
                              .add(searches ? wanted.most_searched : wanted.limit)
                              .add(searches ? int64_t{0} : wanted.first);
  TRY(const PgRows all, connection.run(wanted.pinned_only ? "SELECT count(*) FROM pins"
                                                          : "SELECT programs FROM totals"));
  constexpr char kColumns[] = "SELECT key, manifest, bytes, used_hour, pinned FROM ";
  constexpr char kMatches[] =
      " audience = '' AND (position($4::text in manifest) > 0"
      " OR starts_with(encode(key, 'hex'), $4::text))";
  PgRows rows;
  if (searches) {
    const PgValues text = PgValues(bounds).add_text(wanted.text);
    TRY(const PgRows matching,
        connection.run(
            fmt::format("SELECT count(*) FROM ({}) AS chosen WHERE {}", some, kMatches).c_str(),
            text));
    list.total = matching.integer(0, 0);
    list.is_partial = all.integer(0, 0) > wanted.most_searched;
    TRY(rows,
        connection.run(fmt::format("{} ({}) AS chosen WHERE {} ORDER BY {} LIMIT $5 OFFSET $6",
                                   kColumns, some, kMatches, order_of(wanted.order))
                           .c_str(),
                       PgValues(text).add(wanted.limit).add(wanted.first)));
  } else {
    list.total = all.integer(0, 0);
    TRY(rows, connection.run(fmt::format("{} ({}) AS chosen WHERE audience = '' ORDER BY {}",
                                         kColumns, some, order_of(wanted.order))
                                 .c_str(),
                             bounds));
  }
  for (int64_t row = 0; row < rows.size(); ++row) {
    TRY(ListedProgram program, listed(rows, row));
    list.programs.push_back(std::move(program));
  }
  return list;
}

Result<bool> has_acts(PgConnection& connection) {
  TRY(const PgRows there, connection.run("SELECT to_regclass('kiln.acts') IS NOT NULL"));
  return there.boolean(0, 0);
}

Result<std::vector<AdminAct>> acts(PgConnection& connection, int64_t before, int64_t limit) {
  TRY(const PgRows rows,
      connection.run("SELECT id, at_ms, coordinator, who, request, done, outcome FROM acts"
                     " WHERE id < $1 ORDER BY id DESC LIMIT $2",
                     PgValues().add(before).add(limit)));
  std::vector<AdminAct> found;
  for (int64_t row = 0; row < rows.size(); ++row)
    found.push_back({rows.integer(row, 0), rows.integer(row, 1), std::string(rows.bytes(row, 2)),
                     std::string(rows.bytes(row, 3)), std::string(rows.bytes(row, 4)),
                     rows.boolean(row, 5), std::string(rows.bytes(row, 6))});
  return found;
}

Result<PostgresIndex::Totals> totals(PgConnection& connection) {
  TRY(const PgRows sums, connection.run("SELECT programs, kernels, records, blob_bytes, bytes"
                                        " FROM totals"));
  return PostgresIndex::Totals{sums.integer(0, 0), sums.integer(0, 1), sums.integer(0, 2),
                               sums.integer(0, 3), sums.integer(0, 4)};
}

Result<std::vector<Going>> going(PgConnection& connection, int limit) {
  TRY(const PgRows rows,
      connection.run("SELECT digest, object FROM blobs WHERE state = 'X' LIMIT $1",
                     PgValues().add(int64_t{limit})));
  std::vector<Going> all;
  for (int64_t row = 0; row < rows.size(); ++row) {
    TRY(const Digest digest, rows.digest(row, 0));
    all.push_back({digest, std::string(rows.bytes(row, 1))});
  }
  return all;
}

Status forget_removed(PgConnection& connection, const Going& gone) {
  TRY_STATUS(connection.run("DELETE FROM blobs WHERE digest = $1 AND object = $2 AND state = 'X'",
                            PgValues().add(gone.digest).add_text(gone.object)));
  return {};
}

}  // namespace kiln::reads
