// Format of index.sqlite, version 2 (PRAGMA user_version). Digests are 32-byte blobs.
//
//   blobs     digest, bytes                    one row a published file
//   programs  key, manifest, blobs, seal       manifest: program_to_json; blobs: their digests in a
//   row kernels   key, kernel, target, seal        kernel: kernel_to_json; target: target_to_text
//   winners   workload, schedule               every schedule that ever won; id grows with time
//   kin       workload, kin, sizes             (since 2) workloads that differ in sizes only have
//   one
//                                              kin; sizes: little-endian i64
//   records   kernel_key, ..., seal            tuning records, kept when binaries go; id grows with
//                                              time; samples: little-endian f64; seed: its 64 bits
//
// A change that old readers cannot live with raises the version; files of a newer one are refused,
// those of an older one brought up to date when the writer opens them (kMigrations).
#include "cache/index.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

namespace kiln {
namespace {

static_assert(std::endian::native == std::endian::little,
              "samples are stored as they lie in memory");

constexpr int64_t kSchemaVersion = 2;

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
)sql"};

// "cpu:x86-64-v4|2|Intel(R) Xeon(R) Processor", "cuda:sm_90a|132 cuda-13|NVIDIA H200": the model
// comes last, it may hold anything.
std::string target_to_text(const Target& target) {
  return fmt::format("{}|{}{}{}|{}", target.to_string(), target.units,
                     target.toolkit.empty() ? "" : " ", target.toolkit, target.device_model);
}

Result<Target> target_from_text(std::string_view text) {
  const size_t first = text.find('|'), second = text.find('|', first + 1);
  if (second == std::string_view::npos) return fail(Code::kCorruption, "index: not a target");
  TRY(Target target, Target::parse(text.substr(0, first)));
  const std::string_view facts = text.substr(first + 1, second - first - 1);
  const size_t units_end = std::min(facts.find(' '), facts.size());
  const auto parsed = std::from_chars(facts.data(), facts.data() + units_end, target.units);
  if (parsed.ec != std::errc() || parsed.ptr != facts.data() + units_end)
    return fail(Code::kCorruption, "index: not a target");
  if (units_end < facts.size()) target.toolkit = facts.substr(units_end + 1);
  target.device_model = text.substr(second + 1);
  return target;
}

std::string_view as_bytes(const std::vector<double>& samples) {
  return {reinterpret_cast<const char*>(samples.data()), samples.size() * sizeof(double)};
}

std::string_view as_bytes(const std::vector<int64_t>& sizes) {
  return {reinterpret_cast<const char*>(sizes.data()), sizes.size() * sizeof(int64_t)};
}

std::string joined(const std::vector<Digest>& digests) {
  std::string bytes;
  for (const Digest& digest : digests)
    bytes.append(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size());
  return bytes;
}

std::vector<Digest> split(std::string_view bytes) {
  std::vector<Digest> digests(bytes.size() / sizeof(Digest));
  if (!digests.empty()) std::memcpy(digests.data(), bytes.data(), digests.size() * sizeof(Digest));
  return digests;
}

Digest seal_program(const Digest& key, std::string_view manifest, std::string_view blobs) {
  return Hasher("kiln.index.program.v1").add(key).add(manifest).add(blobs).finish();
}

Digest seal_kernel(const Digest& key, std::string_view kernel, std::string_view target) {
  return Hasher("kiln.index.kernel.v1").add(key).add(kernel).add(target).finish();
}

Digest seal_record(const TuningRecord& record) {
  return Hasher("kiln.index.record.v1")
      .add(record.kernel_key)
      .add(record.workload)
      .add(target_to_text(record.target))
      .add(record.schedule.to_string())
      .add(static_cast<int64_t>(record.verdict))
      .add(record.log)
      .add(as_bytes(record.measurement.samples_us))
      .add(record.binary)
      .add(record.worker)
      .add(record.taken_at_ms)
      .add(static_cast<int64_t>(record.seed))
      .finish();
}

tl::unexpected<Error> damaged(std::string_view what, const Digest& key) {
  return fail(Code::kCorruption, fmt::format("the row of {} {} is damaged", what, key.short_hex()));
}

// Of the columns workload .. seed, in the order of the table. The seal decides about the rest.
Result<TuningRecord> read_record(const Query& row, const Digest& kernel_key) {
  TuningRecord record;
  record.kernel_key = kernel_key;
  TRY(record.workload, row.digest(0));
  TRY(record.target, target_from_text(row.bytes(1)));
  TRY(record.schedule, Schedule::parse(row.bytes(2)));
  record.verdict = static_cast<Verdict>(row.integer(3));
  TRY(record.verdict, parse_verdict(to_string(record.verdict)));
  record.log = row.bytes(4);
  const std::string_view samples = row.bytes(5);
  record.measurement.samples_us.resize(samples.size() / sizeof(double));
  if (!samples.empty())
    std::memcpy(record.measurement.samples_us.data(), samples.data(),
                record.measurement.samples_us.size() * sizeof(double));
  TRY(record.binary, row.digest(6));
  record.worker = row.bytes(7);
  record.taken_at_ms = row.integer(8);
  record.seed = static_cast<uint64_t>(row.integer(9));
  TRY(const Digest seal, row.digest(10));
  if (seal != seal_record(record)) return damaged("a record of", kernel_key);
  return record;
}

}  // namespace

Result<CacheIndex> CacheIndex::open_for_writing(const Path& file) {
  TRY(Database db, Database::open(file, Database::Access::kReadWrite));
  CacheIndex index(std::move(db));
  // FULL: what is reported as stored survives the loss of power, not only of the process.
  TRY_STATUS(index.db_.run("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"));
  {
    Query check(index.db_, "PRAGMA quick_check(1)");
    TRY(const bool row, check.next());
    if (!row || check.bytes(0) != "ok")
      return fail(Code::kCorruption,
                  fmt::format("index: {}", row ? check.bytes(0) : "no answer to quick_check"));
  }
  TRY_STATUS(index.prepare_schema());
  return index;
}

Status CacheIndex::prepare_schema() {
  int64_t version = 0;
  {
    Query query(db_, "PRAGMA user_version");
    TRY([[maybe_unused]] const bool row, query.next());
    version = query.integer(0);
  }
  if (version == kSchemaVersion) return {};
  if (version < 0 || version > kSchemaVersion)
    return fail(
        Code::kUnsupported,
        fmt::format("the index has version {}, this build knows {}: it belongs to a newer Kiln",
                    version, kSchemaVersion));
  TRY_STATUS(begin());
  for (; version < kSchemaVersion; ++version)
    if (Status migrated = db_.run(kMigrations[static_cast<size_t>(version)]); !migrated) {
      roll_back();
      return migrated;
    }
  return commit();
}

Result<CacheIndex> CacheIndex::open_for_reading(const Path& file) {
  TRY(Database db, Database::open(file, Database::Access::kReadOnly));
  return CacheIndex(std::move(db));
}

Result<ProgramRow> CacheIndex::program(const Digest& key) {
  Query query(db_, "SELECT manifest, blobs, seal FROM programs WHERE key = ?");
  TRY(const bool found, query.bind(key).next());
  if (!found) return fail(Code::kNotFound, "no program " + key.short_hex());
  const Result<Digest> seal = query.digest(2);
  if (!seal || *seal != seal_program(key, query.bytes(0), query.bytes(1)))
    return damaged("program", key);
  return ProgramRow{std::string(query.bytes(0)), split(query.bytes(1))};
}

Result<KernelRow> CacheIndex::kernel(const Digest& key) {
  Query query(db_, "SELECT kernel, target, seal FROM kernels WHERE key = ?");
  TRY(const bool found, query.bind(key).next());
  if (!found) return fail(Code::kNotFound, "no kernel " + key.short_hex());
  const Result<Digest> seal = query.digest(2);
  if (!seal || *seal != seal_kernel(key, query.bytes(0), query.bytes(1)))
    return damaged("kernel", key);
  Result<ProgramKernel> kernel = kernel_from_json(query.bytes(0));
  Result<Target> target = target_from_text(query.bytes(1));
  if (!kernel || !target) return damaged("kernel", key);
  return KernelRow{*std::move(kernel), *std::move(target)};
}

Result<std::vector<TuningRecord>> CacheIndex::records(const Digest& kernel_key) {
  Query query(
      db_,
      "SELECT workload, target, schedule, verdict, log, samples, binary, worker, taken_at_ms,"
      " seed, seal FROM records WHERE kernel_key = ? ORDER BY id");
  query.bind(kernel_key);
  std::vector<TuningRecord> records;
  for (;;) {
    TRY(const bool row, query.next());
    if (!row) return records;
    if (Result<TuningRecord> record = read_record(query, kernel_key))
      records.push_back(*std::move(record));
  }
}

Result<std::vector<Schedule>> CacheIndex::earlier_winners(const Digest& workload) {
  Query query(db_, "SELECT schedule FROM winners WHERE workload = ? ORDER BY id DESC");
  query.bind(workload);
  std::vector<Schedule> schedules;
  for (;;) {
    TRY(const bool row, query.next());
    if (!row) return schedules;
    // A family or decision that this build no longer knows is no use as a first candidate.
    if (Result<Schedule> schedule = Schedule::parse(query.bytes(0)))
      schedules.push_back(*std::move(schedule));
  }
}

Result<std::vector<Schedule>> CacheIndex::kin_winners(const Kin& kin) {
  Query query(db_,
              "SELECT winners.schedule, kin.sizes FROM kin JOIN winners USING (workload)"
              " WHERE kin.kin = ? ORDER BY winners.id DESC LIMIT 256");
  query.bind(kin.digest);
  std::vector<std::pair<double, Schedule>> found;
  for (;;) {
    TRY(const bool row, query.next());
    if (!row) break;
    const std::string_view bytes = query.bytes(1);
    std::vector<int64_t> sizes(bytes.size() / sizeof(int64_t));
    if (!sizes.empty()) std::memcpy(sizes.data(), bytes.data(), sizes.size() * sizeof(int64_t));
    const double away = distance(sizes, kin.sizes);
    Result<Schedule> schedule = Schedule::parse(query.bytes(0));
    if (schedule && std::isfinite(away)) found.emplace_back(away, *std::move(schedule));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Schedule> schedules;
  for (auto& [away, schedule] : found)
    if (std::find(schedules.begin(), schedules.end(), schedule) == schedules.end())
      schedules.push_back(std::move(schedule));
  return schedules;
}

Result<CacheIndex::Counts> CacheIndex::counts() {
  Query query(db_,
              "SELECT (SELECT count(*) FROM programs), (SELECT count(*) FROM kernels),"
              " (SELECT count(*) FROM records), (SELECT coalesce(sum(bytes), 0) FROM blobs)");
  TRY([[maybe_unused]] const bool row, query.next());
  return Counts{query.integer(0), query.integer(1), query.integer(2), query.integer(3)};
}

Status CacheIndex::put_blob(const Digest& digest, int64_t bytes) {
  return Query(db_, "INSERT OR REPLACE INTO blobs VALUES (?, ?)").bind(digest).bind(bytes).run();
}

Status CacheIndex::put_program(const Digest& key, const ProgramRow& row) {
  const std::string blobs = joined(row.blobs);
  return Query(db_, "INSERT OR REPLACE INTO programs VALUES (?, ?, ?, ?)")
      .bind(key)
      .bind_text(row.manifest)
      .bind_blob(blobs)
      .bind(seal_program(key, row.manifest, blobs))
      .run();
}

Status CacheIndex::put_kernel(const KernelRow& row) {
  const std::string kernel = kernel_to_json(row.kernel), target = target_to_text(row.tuned_on);
  TRY_STATUS(Query(db_, "INSERT OR REPLACE INTO kernels VALUES (?, ?, ?, ?)")
                 .bind(row.kernel.key)
                 .bind_text(kernel)
                 .bind_text(target)
                 .bind(seal_kernel(row.kernel.key, kernel, target))
                 .run());
  if (row.kernel.report.best_us <= 0) return {};  // a guess that was never timed has won nothing
  return Query(db_, "INSERT INTO winners (workload, schedule) VALUES (?, ?)")
      .bind(row.kernel.workload)
      .bind_text(row.kernel.schedule)
      .run();
}

Status CacheIndex::put_kin(const Digest& workload, const Kin& kin) {
  return Query(db_, "INSERT OR REPLACE INTO kin VALUES (?, ?, ?)")
      .bind(workload)
      .bind(kin.digest)
      .bind_blob(as_bytes(kin.sizes))
      .run();
}

Status CacheIndex::put_record(const TuningRecord& record) {
  return Query(db_,
               "INSERT INTO records (kernel_key, workload, target, schedule, verdict, log, samples,"
               " binary, worker, taken_at_ms, seed, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
               "?)")
      .bind(record.kernel_key)
      .bind(record.workload)
      .bind_text(target_to_text(record.target))
      .bind_text(record.schedule.to_string())
      .bind(static_cast<int64_t>(record.verdict))
      .bind_text(record.log)
      .bind_blob(as_bytes(record.measurement.samples_us))
      .bind(record.binary)
      .bind_text(record.worker)
      .bind(record.taken_at_ms)
      .bind(static_cast<int64_t>(record.seed))
      .bind(seal_record(record))
      .run();
}

Status CacheIndex::remove(const Digest& key) {
  TRY_STATUS(Query(db_, "DELETE FROM programs WHERE key = ?").bind(key).run());
  return Query(db_, "DELETE FROM kernels WHERE key = ?").bind(key).run();
}

Status CacheIndex::remove_damaged(const Digest& key) {
  const auto is_damaged = [](const auto& row) {
    return !row && row.error().code == Code::kCorruption;
  };
  if (is_damaged(program(key)))
    TRY_STATUS(Query(db_, "DELETE FROM programs WHERE key = ?").bind(key).run());
  if (is_damaged(kernel(key)))
    TRY_STATUS(Query(db_, "DELETE FROM kernels WHERE key = ?").bind(key).run());
  return {};
}

}  // namespace kiln
