// The meaning of a TakeBack in the tables of PostgreSQL (cache/taking_back.h: its meaning at all).
#include <fmt/format.h>

#include <set>
#include <string>
#include <utility>

#include "cache/postgres/postgres_index.h"
#include "cache/sealed_rows.h"

namespace kiln {
namespace {

// The records that a worker, or a key's owner, reported in a time; values as reported() has them.
constexpr char kReported[] =
    "($1 = ''::bytea OR worker = $1) AND ($2 = ''::bytea OR owner = $2)"
    " AND taken_at_ms BETWEEN $3 AND $4";
PgValues reported(const TakeBack& what) {
  return PgValues()
      .add_bytes(what.worker)
      .add_bytes(what.owner)
      .add(what.since_ms)
      .add(what.until_ms);
}

// `statement` about the records that go; values as taken_records() has them.
std::string of_taken_records(std::string_view statement) {
  return fmt::format("{} WHERE ($5 AND kernel_key = ANY($6)) OR ($7 AND {})", statement, kReported);
}
PgValues taken_records(const TakeBack& what, const std::vector<Digest>& kernels) {
  return reported(what).add(what.takes_records()).add(kernels).add(what.means_reports());
}

}  // namespace

Result<std::set<Digest>> PostgresIndex::kernels_meant(const TakeBack& what) {
  std::set<Digest> kernels(what.kernels.begin(), what.kernels.end());
  const auto add = [&](const Result<PgRows>& found) -> Status {
    if (!found) return fail(found.error());
    for (int64_t row = 0; row < found->size(); ++row) {
      TRY(const Digest key, found->digest(row, 0));
      kernels.insert(key);
    }
    return {};
  };
  TRY_STATUS(add(run("SELECT kernel FROM program_kernels WHERE program = ANY($1)",
                     PgValues().add(what.programs))));
  if (!what.means_reports()) return kernels;
  TRY_STATUS(add(
      run_long((std::string("SELECT DISTINCT kernel_key FROM records WHERE ") + kReported).c_str(),
               reported(what))));
  if (what.since_ms > 0 || what.until_ms < INT64_MAX) return kernels;  // winners have no time
  // A kernel whose records are gone is found too.
  for (const auto& [name, value] : {std::pair{"worker", what.worker}, std::pair{"key", what.owner}})
    if (!value.empty())
      TRY_STATUS(add(run_long("SELECT key FROM kernels WHERE position($1::text in kernel) > 0",
                              PgValues().add_text(json_member(name, value)))));
  return kernels;
}

Result<TakenBack> PostgresIndex::would_take_back(const TakeBack& what) {
  TakenBack found;
  TRY(const std::set<Digest> kernels, kernels_meant(what));
  found.kernels.assign(kernels.begin(), kernels.end());
  const PgValues meant = PgValues().add(what.programs).add(found.kernels);
  TRY(const PgRows programs, run_long("SELECT key FROM programs WHERE key = ANY($1) UNION"
                                      " SELECT program FROM program_kernels WHERE kernel = ANY($2)",
                                      meant));
  for (int64_t row = 0; row < programs.size(); ++row) {
    TRY(const Digest key, programs.digest(row, 0));
    found.programs.push_back(key);
  }
  TRY(const PgRows blobs, run_long("SELECT digest FROM program_blobs WHERE program = ANY($1) UNION"
                                   " SELECT blob FROM kernels WHERE key = ANY($2)",
                                   PgValues().add(found.programs).add(found.kernels)));
  for (int64_t row = 0; row < blobs.size(); ++row) {
    TRY(const Digest blob, blobs.digest(row, 0));
    found.blobs.push_back(blob);
  }
  TRY(const PgRows records, run_long(of_taken_records("SELECT count(*) FROM records").c_str(),
                                     taken_records(what, found.kernels)));
  found.records = records.integer(0, 0);
  return found;
}

Result<TakenBack> PostgresIndex::take_back(const TakeBack& what, int64_t through) {
  TRY(TakenBack taken, would_take_back(what));
  TRY_STATUS(run_long("DELETE FROM programs WHERE key = ANY($1)", PgValues().add(taken.programs)));
  TRY_STATUS(run_long("DELETE FROM kernels WHERE key = ANY($1)", PgValues().add(taken.kernels)));
  TRY(const PgRows records, run_long(of_taken_records("DELETE FROM records").c_str(),
                                     taken_records(what, taken.kernels)));
  taken.records = records.changed();
  const std::vector<Digest> blobs = std::exchange(taken.blobs, {});
  TRY_STATUS(doom_unneeded(blobs, true, &taken));
  for (const auto& [kind, keys] : {std::pair{Revocation::Kind::kProgram, what.programs},
                                   std::pair{Revocation::Kind::kKernel, taken.kernels}})
    TRY_STATUS(run(
        "INSERT INTO revoked (kind, key, through, at_ms)"
        " SELECT $1, k, $3, $4 FROM unnest($2::bytea[]) AS t (k)",
        PgValues().add(static_cast<int64_t>(kind)).add(keys).add(through).add(settings_.now_ms())));
  TRY_STATUS(run("DELETE FROM revoked WHERE id <= (SELECT max(id) FROM revoked) - $1",
                 PgValues().add(kMaxRevocations)));
  return taken;
}

}  // namespace kiln
