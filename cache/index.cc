#include "cache/index.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>

#include "cache/damaged.h"

namespace kiln {
namespace {

static_assert(std::endian::native == std::endian::little,
              "samples are stored as they lie in memory");

// "cpu:x86-64-v4|2|Intel(R) Xeon(R) Processor", "cuda:sm_90a|132 cuda-13|NVIDIA H200": the model
// comes last since it may hold any character.
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

// v2 has an audience; everybody's keep their seal from before there were any.
Digest seal_program(const Digest& key, std::string_view manifest, std::string_view blobs,
                    std::string_view audience) {
  Hasher hasher(audience.empty() ? "kiln.index.program.v1" : "kiln.index.program.v2");
  hasher.add(key).add(manifest).add(blobs);
  if (!audience.empty()) hasher.add(audience);
  return hasher.finish();
}

Digest seal_kernel(const Digest& key, std::string_view kernel, std::string_view target) {
  return Hasher("kiln.index.kernel.v1").add(key).add(kernel).add(target).finish();
}

// v2 has a calibration time (sentinel_us), v3 also the version of the template, v4 also the owner. A
// record keeps its seal from before there were any (index versions 3 to 5), so that a migration need
// not seal a million rows anew.
Digest seal_record(const TuningRecord& record) {
  const bool has_owner = !record.owner.empty();
  const bool has_version = has_owner || record.template_version != 0;
  const bool has_sentinel = has_version || record.sentinel_us != 0;
  Hasher hasher(has_owner      ? "kiln.index.record.v4"
                : has_version  ? "kiln.index.record.v3"
                : has_sentinel ? "kiln.index.record.v2"
                               : "kiln.index.record.v1");
  hasher.add(record.kernel_key)
      .add(record.workload)
      .add(target_to_text(record.target))
      .add(record.schedule.to_string())
      .add(static_cast<int64_t>(record.verdict))
      .add(record.log)
      .add(as_bytes(record.measurement.samples_us))
      .add(record.binary)
      .add(record.worker)
      .add(record.taken_at_ms)
      .add(static_cast<int64_t>(record.seed));
  if (has_sentinel) hasher.add(std::bit_cast<int64_t>(record.sentinel_us));
  if (has_version) hasher.add(int64_t{record.template_version});
  if (has_owner) hasher.add(record.owner);
  return hasher.finish();
}

int64_t bytes_on_disk(const ProgramRow& row) {
  return static_cast<int64_t>(row.manifest.size() + row.blobs.size() * sizeof(Digest));
}

tl::unexpected<Error> damaged(std::string_view what, const Digest& key) {
  return fail(Code::kCorruption, fmt::format("the row of {} {} is damaged", what, key.short_hex()));
}

// Reads the columns workload .. owner and the seal, in the order of the table. Columns
// that do not match the seal are damaged.
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
  record.sentinel_us = row.real(10);
  record.template_version = static_cast<int>(row.integer(11));
  record.owner = row.bytes(12);
  TRY(const Digest seal, row.digest(13));
  if (seal != seal_record(record)) return damaged("a record of", kernel_key);
  return record;
}

}  // namespace

std::vector<Digest> digests_in(std::string_view bytes) {
  std::vector<Digest> digests(bytes.size() / sizeof(Digest));
  if (!digests.empty()) std::memcpy(digests.data(), bytes.data(), digests.size() * sizeof(Digest));
  return digests;
}

int64_t CacheIndex::wall_clock_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

Result<CacheIndex> CacheIndex::open_for_writing(const Path& file, Clock clock,
                                                int64_t memory_bytes) {
  TRY(Database db, Database::open(file, Database::Access::kReadWrite));
  CacheIndex index(std::move(db), std::move(clock));
  // FULL: what is reported as stored survives the loss of power, not only of the process.
  TRY_STATUS(index.db_.run("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"));
  TRY_STATUS(index.db_.keep_pages(memory_bytes));
  std::error_code unknown;
  const auto size = static_cast<int64_t>(std::filesystem::file_size(file, unknown));
  if (unknown || size <= kCheckedAtOnceBytes) TRY_STATUS(index.check());
  TRY_STATUS(prepare_schema(index.db_, index.clock_()));
  TRY_STATUS(index.eviction_.load(index.db_));
  return index;
}

Result<CacheIndex> CacheIndex::open_for_reading(const Path& file) {
  TRY(Database db, Database::open(file, Database::Access::kReadOnly));
  TRY_STATUS(check_schema(db));
  return CacheIndex(std::move(db), wall_clock_ms);
}

Status CacheIndex::check() {
  if (const Status sound = check_soundness(db_); !sound) return fail(sound.error().within("index"));
  return {};
}

Status CacheIndex::begin() {
  TRY_STATUS(Query(db_, "BEGIN IMMEDIATE").run());
  in_transaction_ = true;
  return eviction_.load(db_);
}

Status CacheIndex::commit() {
  TRY_STATUS(eviction_.save(db_));
  TRY_STATUS(Query(db_, "COMMIT").run());
  in_transaction_ = false;
  return {};
}

void CacheIndex::roll_back() {
  (void)db_.run("ROLLBACK");
  in_transaction_ = false;
}

Status CacheIndex::begin_part() {
  eviction_.begin_part();
  return Query(db_, "SAVEPOINT part").run();
}

Status CacheIndex::undo_part() {
  eviction_.undo_part();
  return db_.run("ROLLBACK TO part; RELEASE part;");
}

Result<ProgramRow> CacheIndex::program(const Digest& key) {
  Query query(db_, "SELECT manifest, blobs, seal, audience FROM programs WHERE key = ?");
  TRY(const bool found, query.bind(key).next());
  if (!found) return fail(Code::kNotFound, "no program " + key.short_hex());
  const Result<Digest> seal = query.digest(2);
  if (!seal || *seal != seal_program(key, query.bytes(0), query.bytes(1), query.bytes(3)))
    return damaged("program", key);
  ProgramRow row{std::string(query.bytes(0)), digests_in(query.bytes(1))};
  row.audience = Audience::parse(query.bytes(3));
  return row;
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
      " seed, sentinel_us, template_version, owner, seal FROM records WHERE kernel_key = ? ORDER "
      "BY id");
  query.bind(kernel_key);
  std::vector<TuningRecord> records;
  for (;;) {
    TRY(const bool row, query.next());
    if (!row) return records;
    if (Result<TuningRecord> record = read_record(query, kernel_key))
      records.push_back(*std::move(record));
  }
}

Result<CacheIndex::RecordPage> CacheIndex::check_records(int64_t after_id, int limit) {
  Query query(
      db_,
      "SELECT workload, target, schedule, verdict, log, samples, binary, worker, taken_at_ms,"
      " seed, sentinel_us, template_version, owner, seal, id, kernel_key FROM records WHERE id > ? "
      "ORDER "
      "BY id LIMIT ?");
  query.bind(after_id).bind(static_cast<int64_t>(limit));
  RecordPage page;
  for (;;) {
    TRY(const bool row, query.next());
    if (!row) return page;
    page.last_id = query.integer(14);
    ++page.records;
    const Result<Digest> kernel = query.digest(15);
    if (!kernel || !read_record(query, *kernel)) page.damaged.push_back(page.last_id);
  }
}

Status CacheIndex::remove_record(int64_t id) {
  TRY_STATUS(Query(db_, "DELETE FROM records WHERE id = ?").bind(id).run());
  eviction_.add_records(-db_.changes());
  return {};
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

Result<std::vector<Schedule>> CacheIndex::nearest_winners(const ShapeGenericKey& key) {
  Query query(db_,
              "SELECT winners.schedule, kin.sizes FROM kin JOIN winners USING (workload)"
              " WHERE kin.kin = ? ORDER BY winners.id DESC LIMIT 256");
  query.bind(key.digest);
  std::vector<std::pair<double, Schedule>> found;
  for (;;) {
    TRY(const bool row, query.next());
    if (!row) break;
    const std::string_view bytes = query.bytes(1);
    std::vector<int64_t> sizes(bytes.size() / sizeof(int64_t));
    if (!sizes.empty()) std::memcpy(sizes.data(), bytes.data(), sizes.size() * sizeof(int64_t));
    const double away = distance(sizes, key.sizes);
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

Result<IndexTotals> CacheIndex::totals() {
  if (in_transaction_) return eviction_.totals();
  TRY_STATUS(eviction_.load(db_));
  return eviction_.totals();
}

Result<int64_t> CacheIndex::programs_not_of(const Digest& stamp) {
  const std::string text = stamp.hex();
  Query query(db_, "SELECT count(*) FROM programs WHERE stamp <> ?");
  TRY([[maybe_unused]] const bool row, query.bind_text(text).next());
  return query.integer(0);
}

Status CacheIndex::put_blob(const Digest& digest, int64_t bytes) {
  return eviction_.put_blob(db_, digest, bytes, clock_());
}

Result<std::vector<Digest>> CacheIndex::blobs_of(const Digest& program) {
  Query query(db_, "SELECT blobs FROM programs WHERE key = ?");
  TRY(const bool found, query.bind(program).next());
  return found ? digests_in(query.bytes(0)) : std::vector<Digest>{};
}

Status CacheIndex::put_program(const Digest& key, const ProgramRow& row) {
  TRY(const std::vector<Digest> old_blobs, blobs_of(key));
  const std::string blobs = joined(row.blobs), audience = row.audience.to_text();
  TRY_STATUS(Query(db_,
                   "INSERT OR REPLACE INTO programs (key, manifest, blobs, seal, stamp, audience)"
                   " VALUES (?, ?, ?, ?, ?, ?)")
                 .bind(key)
                 .bind_text(row.manifest)
                 .bind_blob(blobs)
                 .bind(seal_program(key, row.manifest, blobs, audience))
                 .bind_text(row.stamp)
                 .bind_text(audience)
                 .run());
  return eviction_.put_program(db_, key, bytes_on_disk(row), old_blobs, row.blobs, clock_());
}

Status CacheIndex::put_kernel(const KernelRow& row) {
  const std::string kernel = kernel_to_json(row.kernel), target = target_to_text(row.tuned_on);
  TRY_STATUS(Query(db_, "INSERT OR REPLACE INTO kernels VALUES (?, ?, ?, ?)")
                 .bind(row.kernel.key)
                 .bind_text(kernel)
                 .bind_text(target)
                 .bind(seal_kernel(row.kernel.key, kernel, target))
                 .run());
  TRY_STATUS(eviction_.put_kernel(db_, row.kernel.key,
                                  static_cast<int64_t>(kernel.size() + target.size()),
                                  row.kernel.blob, clock_()));
  if (row.kernel.report.best_us <= 0) return {};  // a guess that was never timed has won nothing
  return Query(db_, "INSERT INTO winners (workload, schedule) VALUES (?, ?)")
      .bind(row.kernel.workload)
      .bind_text(row.kernel.schedule)
      .run();
}

Status CacheIndex::put_shape_generic_key(const Digest& workload, const ShapeGenericKey& key) {
  return Query(db_, "INSERT OR REPLACE INTO kin VALUES (?, ?, ?)")
      .bind(workload)
      .bind(key.digest)
      .bind_blob(as_bytes(key.sizes))
      .run();
}

Status CacheIndex::put_record(const TuningRecord& record) {
  TRY_STATUS(
      Query(db_,
            "INSERT INTO records (kernel_key, workload, target, schedule, verdict, log, samples,"
            " binary, worker, taken_at_ms, seed, sentinel_us, template_version, owner, seal)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
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
          .bind_real(record.sentinel_us)
          .bind(int64_t{record.template_version})
          .bind_text(record.owner)
          .bind(seal_record(record))
          .run());
  eviction_.add_records(db_.changes());  // none when it is there already
  return {};
}

Status CacheIndex::remove_program(const Digest& key) {
  TRY(const std::vector<Digest> blobs, blobs_of(key));
  TRY_STATUS(Query(db_, "DELETE FROM programs WHERE key = ?").bind(key).run());
  return eviction_.remove_program(db_, key, blobs);
}

Status CacheIndex::remove_kernel(const Digest& key) {
  TRY_STATUS(Query(db_, "DELETE FROM kernels WHERE key = ?").bind(key).run());
  return eviction_.remove_kernel(db_, key);
}

Status CacheIndex::remove(const Digest& key) {
  TRY_STATUS(remove_program(key));
  return remove_kernel(key);
}

Status CacheIndex::remove_damaged(const Digest& key) {
  const auto is_damaged = [](const auto& row) {
    return !row && row.error().code == Code::kCorruption;
  };
  if (is_damaged(program(key))) TRY_STATUS(remove_program(key));
  if (is_damaged(kernel(key))) TRY_STATUS(remove_kernel(key));
  return {};
}

Status CacheIndex::evict(const Entry& entry, Evicted& evicted) {
  switch (entry.id.kind) {
    case EntryKind::kProgram:
      TRY_STATUS(remove_program(entry.id.key));
      evicted.programs.push_back(entry.id.key);
      break;
    case EntryKind::kKernel:
      TRY_STATUS(remove_kernel(entry.id.key));
      break;
    case EntryKind::kBlob:
      TRY_STATUS(eviction_.remove_blob(db_, entry.id.key));
      evicted.blobs.push_back(entry.id.key);
      break;
  }
  evicted.bytes += entry.bytes;
  ++evicted.entries;
  return {};
}

// Evicts one entry at a time: a removed program frees its kernels, and those their files, which are
// then the least recently used.
Result<CacheIndex::Evicted> CacheIndex::evict(int64_t bytes, int64_t before_ms, int limit) {
  Evicted evicted;
  while (evicted.bytes < bytes && evicted.entries < limit) {
    TRY(const auto oldest, EvictionIndex::oldest(db_, before_ms));
    if (!oldest) break;
    TRY_STATUS(evict(*oldest, evicted));
  }
  return evicted;
}

}  // namespace kiln
