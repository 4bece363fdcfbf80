#include "cache/index.h"

#include <fmt/core.h>

#include "cache/damaged.h"
#include "cache/sealed_rows.h"
#include "compiler_core/base/clock.h"

namespace kiln {
namespace {

int64_t bytes_on_disk(const ProgramRow& row) {
  return static_cast<int64_t>(row.manifest.size() + row.blobs.size() * sizeof(Digest));
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
  record.log = row.bytes(4);
  record.measurement.samples_us = samples_in(row.bytes(5));
  TRY(record.binary, row.digest(6));
  record.worker = row.bytes(7);
  record.taken_at_ms = row.integer(8);
  record.seed = static_cast<uint64_t>(row.integer(9));
  record.sentinel_us = row.real(10);
  record.template_version = static_cast<int>(row.integer(11));
  record.owner = row.bytes(12);
  TRY(const Digest seal, row.digest(13));
  return check_record(std::move(record), seal);
}

}  // namespace

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
  return CacheIndex(std::move(db), unix_ms);
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

Result<StoredKernel> CacheIndex::kernel(const Digest& key) {
  Query query(db_, "SELECT kernel, target, seal FROM kernels WHERE key = ?");
  TRY(const bool found, query.bind(key).next());
  if (!found) return fail(Code::kNotFound, "no kernel " + key.short_hex());
  const Result<Digest> seal = query.digest(2);
  if (!seal) return damaged("kernel", key);
  return read_kernel(key, query.bytes(0), query.bytes(1), *seal);
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
    const Result<Digest> kernel = query.digest(15);
    auto record = kernel ? read_record(query, *kernel) : fail(kernel.error());
    if (record)
      page.good.push_back(*std::move(record));
    else
      page.damaged.push_back(page.last_id);
  }
}

Status CacheIndex::remove_record(int64_t id) {
  TRY_STATUS(Query(db_, "DELETE FROM records WHERE id = ?").bind(id).run());
  eviction_.add_records(-db_.changes());
  return {};
}

Result<std::vector<CacheIndex::Kin>> CacheIndex::kin(const Digest& after, int limit) {
  Query query(db_,
              "SELECT workload, kin, sizes FROM kin WHERE workload > ? ORDER BY workload LIMIT ?");
  query.bind(after).bind(static_cast<int64_t>(limit));
  std::vector<Kin> page;
  for (;;) {
    TRY(const bool row, query.next());
    if (!row) return page;
    Kin& one = page.emplace_back();
    TRY(one.workload, query.digest(0));
    TRY(one.key.digest, query.digest(1));
    one.key.sizes = sizes_in(query.bytes(2));
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

Result<std::vector<Schedule>> CacheIndex::nearest_winners(const ShapeGenericKey& key) {
  Query query(db_,
              "SELECT winners.schedule, kin.sizes FROM kin JOIN winners USING (workload)"
              " WHERE kin.kin = ? ORDER BY winners.id DESC LIMIT 256");
  query.bind(key.digest);
  std::vector<WinnerOfSizes> winners;
  for (;;) {
    TRY(const bool row, query.next());
    if (!row) return nearest_first(winners, key.sizes);
    winners.push_back({sizes_in(query.bytes(1)), std::string(query.bytes(0))});
  }
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

Status CacheIndex::put_kernel(const StoredKernel& row) {
  const std::string kernel = kernel_to_text(row), target = target_to_text(row.tuned_on);
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
