// Format of index.sqlite, version 9 (PRAGMA user_version). Digests are 32-byte blobs, times are
// milliseconds of the wall clock since 1970.
//
//   programs  key, manifest, blobs, seal,      manifest: program_to_json; blobs: their digests in a
//             stamp, audience                  row; stamp (since 7): Program::template_stamp in hex, to
//                                              count those of other templates; audience (since 8):
//                                              Audience::to_text(), empty for all of before, as for
//                                              everybody
//   kernels   key, kernel, target, seal        kernel: kernel_to_text, target: target_to_text of
//                                              sealed_rows.h
//   entries   kind, key, bytes, used_ms,       (since 3) one row a program (1), kernel (2) and
//             held, blob                       published file (3; before: table blobs): what it
//                                              weighs on disk, its last use, by how many it is held
//                                              (eviction_index.h); blob: a kernel's
//   pins      key, since_ms                    (since 3) programs that are never given up
//   totals    programs, kernels, blobs,        (since 3) one row: the sums over entries, and the
//             records, blob_bytes, bytes       count of records
//   winners   workload, schedule               every schedule that ever won; id grows with time
//   kin       workload, kin, sizes             (since 2) workloads that differ in sizes only have
//                                              one kin; sizes: little-endian i64
//   records   kernel_key, ..., seal            tuning records, kept when binaries go; id grows with
//                                              time; samples: little-endian f64; seed: its 64 bits;
//                                              sentinel_us (since 4), template_version (since 5),
//                                              owner (since 6): 0 or empty where it is not known, as
//                                              in all of before
//   revoked   kind, key, through, at_ms        (since 6) what was taken back (taking_back.h); id
//                                              grows with time
//   acts      at_ms, coordinator, who,         (since 9) what operators asked for (admin_act.h); id
//             request, done, outcome           grows with time
//
// Since 5 the `templates` of a kernel say what had candidates. Kernels and programs of before are
// under keys that nobody asks for any more, since keys held the versions then; what they leave are
// the earlier winners, whose schedules may still begin with a family: "matmul tile=8".
//
// A change that old readers cannot live with raises the version; files of a newer one are refused,
// those of an older one brought up to date when the writer opens them (kMigrations).
#include "cache/index.h"

#include <fmt/core.h>

#include <array>

namespace kiln {
namespace {

constexpr int64_t kSchemaVersion = 9;
constexpr int64_t kEntriesSince = 3;

// kMigrations[v] makes version v + 1 of version v; 0 is an empty file. Never changed once released.
constexpr std::array<const char*, kSchemaVersion> kMigrations = {R"sql(
CREATE TABLE blobs (digest BLOB PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE programs (
  key BLOB PRIMARY KEY, manifest TEXT NOT NULL, blobs BLOB NOT NULL, seal BLOB NOT NULL);
CREATE TABLE kernels (
  key BLOB PRIMARY KEY, kernel TEXT NOT NULL, target TEXT NOT NULL, seal BLOB NOT NULL);
CREATE TABLE winners (
  id INTEGER PRIMARY KEY AUTOINCREMENT, workload BLOB NOT NULL, schedule TEXT NOT NULL,
  UNIQUE (workload, schedule) ON CONFLICT REPLACE);
CREATE TABLE records (
  id INTEGER PRIMARY KEY AUTOINCREMENT, kernel_key BLOB NOT NULL, workload BLOB NOT NULL,
  target TEXT NOT NULL, schedule TEXT NOT NULL, verdict INTEGER NOT NULL, log TEXT NOT NULL,
  samples BLOB NOT NULL, binary BLOB NOT NULL, worker TEXT NOT NULL, taken_at_ms INTEGER NOT NULL,
  seed INTEGER NOT NULL, seal BLOB NOT NULL UNIQUE ON CONFLICT IGNORE);
CREATE INDEX records_of_kernel ON records (kernel_key, id);
PRAGMA user_version = 1;
)sql",
                                                                 R"sql(
CREATE TABLE kin (
  workload BLOB PRIMARY KEY, kin BLOB NOT NULL, sizes BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX workloads_of_kin ON kin (kin);
PRAGMA user_version = 2;
)sql",
                                                                 R"sql(
CREATE TABLE entries (
  kind INTEGER NOT NULL, key BLOB NOT NULL, bytes INTEGER NOT NULL, used_ms INTEGER NOT NULL,
  held INTEGER NOT NULL, blob BLOB, PRIMARY KEY (kind, key)) WITHOUT ROWID;
CREATE INDEX entries_by_use ON entries (used_ms) WHERE held = 0;
CREATE INDEX entries_of_blob ON entries (blob) WHERE blob IS NOT NULL;
CREATE TABLE pins (key BLOB PRIMARY KEY, since_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE totals (
  programs INTEGER NOT NULL, kernels INTEGER NOT NULL, blobs INTEGER NOT NULL,
  records INTEGER NOT NULL, blob_bytes INTEGER NOT NULL, bytes INTEGER NOT NULL);
INSERT INTO entries SELECT 3, digest, bytes, CAST(strftime('%s', 'now') AS INTEGER) * 1000, 0, NULL
  FROM blobs;
DROP TABLE blobs;
PRAGMA user_version = 3;
)sql",
                                                                 R"sql(
ALTER TABLE records ADD COLUMN sentinel_us REAL NOT NULL DEFAULT 0;
PRAGMA user_version = 4;
)sql",
                                                                 R"sql(
ALTER TABLE records ADD COLUMN template_version INTEGER NOT NULL DEFAULT 0;
PRAGMA user_version = 5;
)sql",
                                                                 R"sql(
ALTER TABLE records ADD COLUMN owner TEXT NOT NULL DEFAULT '';
CREATE TABLE revoked (
  id INTEGER PRIMARY KEY AUTOINCREMENT, kind INTEGER NOT NULL, key BLOB NOT NULL,
  through INTEGER NOT NULL, at_ms INTEGER NOT NULL);
PRAGMA user_version = 6;
)sql",
                                                                 R"sql(
ALTER TABLE programs ADD COLUMN stamp TEXT NOT NULL DEFAULT '';
UPDATE programs SET stamp = coalesce(json_extract(manifest, '$.codegen'), '')
  WHERE json_valid(manifest);
CREATE INDEX programs_by_stamp ON programs (stamp);
PRAGMA user_version = 7;
)sql",
                                                                 R"sql(
ALTER TABLE programs ADD COLUMN audience TEXT NOT NULL DEFAULT '';
PRAGMA user_version = 8;
)sql",
                                                                 R"sql(
CREATE TABLE acts (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, coordinator TEXT NOT NULL,
  who TEXT NOT NULL, request TEXT NOT NULL, done INTEGER NOT NULL, outcome TEXT NOT NULL);
PRAGMA user_version = 9;
)sql"};

Result<int64_t> version_of(Database& db) {
  Query query(db, "PRAGMA user_version");
  TRY([[maybe_unused]] const bool row, query.next());
  const int64_t version = query.integer(0);
  if (version < 0 || version > kSchemaVersion)
    return fail(
        Code::kUnsupported,
        fmt::format("the index has version {}, this build knows {}: it belongs to a newer Kiln",
                    version, kSchemaVersion));
  return version;
}

Status migrate(Database& db, int64_t version, int64_t now_ms) {
  const bool without_entries = version < kEntriesSince;
  for (; version < kSchemaVersion; ++version)
    TRY_STATUS(db.run(kMigrations[static_cast<size_t>(version)]));
  if (without_entries) TRY_STATUS(EvictionIndex().rebuild(db, now_ms));
  return {};
}

}  // namespace

Status prepare_schema(Database& db, int64_t now_ms) {
  TRY(const int64_t version, version_of(db));
  if (version == kSchemaVersion) return {};
  TRY_STATUS(db.run("BEGIN IMMEDIATE"));
  if (Status migrated = migrate(db, version, now_ms); !migrated) {
    (void)db.run("ROLLBACK");
    return migrated;
  }
  return db.run("COMMIT");
}

Status check_schema(Database& db) {
  TRY(const int64_t version, version_of(db));
  if (version == kSchemaVersion) return {};
  return fail(Code::kUnsupported,
              fmt::format("the index has version {}, this build reads {}: start a coordinator on "
                          "it once, which brings it up to date",
                          version, kSchemaVersion));
}

}  // namespace kiln
