// Format of flights.sqlite, version 2 (PRAGMA user_version). Digests are 32-byte blobs.
//
//   flights  turn, id, graph, backend, isa, device_model, units, toolkit, mode, failure_code,
//            failure, text_digest, seal, graph_text, audience, owner, lost
//
// turn grows with time. id: a digest of graph, target, mode and audience (none for everybody), the
// same whatever the code generator. audience, owner and lost are there since 2: Audience::to_text(),
// the user that queued it, and how many processes it has cost. failure_code: the number of a Code, 0 while it has not failed; then graph_text is
// empty. seal: a digest of the rest, with text_digest for graph_text, which may be large and is
// read only when it is planned.
#include "cache/pending_task_store.h"

#include <fmt/core.h>

#include "cache/damaged.h"

namespace kiln {
namespace {

constexpr int64_t kTasksVersion = 2;
constexpr size_t kMaxQueuedTaskBytes = size_t{512} << 20;

constexpr char kVersion1[] = R"sql(
BEGIN IMMEDIATE;
CREATE TABLE flights (
  turn INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB NOT NULL UNIQUE, graph BLOB NOT NULL,
  backend INTEGER NOT NULL, isa TEXT NOT NULL, device_model TEXT NOT NULL, units INTEGER NOT NULL,
  toolkit TEXT NOT NULL, mode TEXT NOT NULL, failure_code INTEGER NOT NULL, failure TEXT NOT NULL,
  text_digest BLOB NOT NULL, seal BLOB NOT NULL, graph_text TEXT NOT NULL);
PRAGMA user_version = 1;
COMMIT;
)sql";
constexpr char kVersion2[] = R"sql(
BEGIN IMMEDIATE;
ALTER TABLE flights ADD COLUMN audience TEXT NOT NULL DEFAULT '';
ALTER TABLE flights ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE flights ADD COLUMN lost INTEGER NOT NULL DEFAULT 0;
PRAGMA user_version = 2;
COMMIT;
)sql";

constexpr char kAll[] =
    "SELECT graph, backend, isa, device_model, units, toolkit, mode, failure_code, failure,"
    " text_digest, seal, audience, owner, lost, turn FROM flights ORDER BY turn";
constexpr char kOne[] =
    "SELECT graph, backend, isa, device_model, units, toolkit, mode, failure_code, failure,"
    " text_digest, seal, audience, owner, lost, graph_text FROM flights WHERE id = ?";
constexpr int kTaskColumns = 14;  // of either, before its last

Digest id_of(const PendingTask& task) {
  Hasher hasher("kiln.flight.id.v1");
  hasher.add(task.graph);
  task.target.add_to(hasher);
  hasher.add(to_string(task.mode));
  if (!task.audience.is_all()) hasher.add(task.audience.to_text());
  return hasher.finish();
}

struct Row {
  PendingTask task;
  Digest text_digest;

  int64_t failure_code() const {
    return task.failure ? static_cast<int64_t>(task.failure->code) : 0;
  }
  std::string_view failure() const {
    return task.failure ? std::string_view(task.failure->message)
                        : std::string_view("");  // not NULL
  }
  // v2 has what version 2 of the file added, where there is any: rows of before keep their seals.
  Digest seal() const {
    const bool is_old = task.audience.is_all() && task.owner.empty() && task.lost == 0;
    Hasher hasher(is_old ? "kiln.flight.v1" : "kiln.flight.v2");
    hasher.add(id_of(task)).add(text_digest).add(failure_code()).add(failure());
    if (!is_old) hasher.add(task.audience.to_text()).add(task.owner).add(task.lost);
    return hasher.finish();
  }
};

Result<Row> read_row(const Query& query) {
  Row row;
  TRY(row.task.graph, query.digest(0));
  const int64_t backend = query.integer(1);
  row.task.target.backend = backend == 2 ? Backend::kCuda : Backend::kCpu;
  row.task.target.isa = query.bytes(2);
  row.task.target.device_model = query.bytes(3);
  row.task.target.units = static_cast<int>(query.integer(4));
  row.task.target.toolkit = query.bytes(5);
  TRY(row.task.mode, parse_mode(query.bytes(6)));
  const int64_t code = query.integer(7);
  if (code > 0 && code <= static_cast<int64_t>(Code::kInternal))
    row.task.failure = Error{static_cast<Code>(code), std::string(query.bytes(8)), 0};
  TRY(row.text_digest, query.digest(9));
  TRY(const Digest seal, query.digest(10));
  row.task.audience = Audience::parse(query.bytes(11));
  row.task.owner = query.bytes(12);
  row.task.lost = query.integer(13);
  if (seal != row.seal()) return fail(Code::kCorruption, "a queued program's row is damaged");
  return row;
}

struct Rows {
  std::vector<PendingTask> tasks;
  std::vector<int64_t> damaged;  // turns
};
Result<Rows> read_all(Database& db) {
  Query query(db, kAll);
  Rows rows;
  for (;;) {
    TRY(const bool found, query.next());
    if (!found) return rows;
    if (Result<Row> row = read_row(query))
      rows.tasks.push_back(std::move(row->task));
    else
      rows.damaged.push_back(query.integer(kTaskColumns));
  }
}

PendingTask without_failure(PendingTask task) {
  task.failure.reset();
  return task;
}

Status write(Database& db, const PendingTask& task, std::string_view graph_text) {
  const Row row{task, Digest::of(graph_text)};
  return Query(db,
               "INSERT OR REPLACE INTO flights (id, graph, backend, isa, device_model, units,"
               " toolkit, mode, failure_code, failure, text_digest, seal, graph_text, audience,"
               " owner, lost) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
      .bind(id_of(task))
      .bind(task.graph)
      .bind(static_cast<int64_t>(task.target.backend))
      .bind_text(task.target.isa)
      .bind_text(task.target.device_model)
      .bind(int64_t{task.target.units})
      .bind_text(task.target.toolkit)
      .bind_text(to_string(task.mode))
      .bind(row.failure_code())
      .bind_text(row.failure())
      .bind(row.text_digest)
      .bind(row.seal())
      .bind_text(graph_text)
      .bind_text(task.audience.to_text())
      .bind_text(task.owner)
      .bind(task.lost)
      .run();
}

Result<bool> has(Database& db, const PendingTask& task) {
  return Query(db, "SELECT 1 FROM flights WHERE id = ?").bind(id_of(task)).next();
}

Result<Database> open_tasks(const Path& file) {
  TRY(Database db, Database::open(file, Database::Access::kReadWrite));
  // FULL: what is answered as queued survives the loss of power.
  TRY_STATUS(db.run("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"));
  TRY_STATUS(check_soundness(db));
  int64_t version = 0;
  {
    Query query(db, "PRAGMA user_version");
    TRY([[maybe_unused]] const bool row, query.next());
    version = query.integer(0);
  }
  if (version == 0) TRY_STATUS(db.run(kVersion1));
  if (version < kTasksVersion) TRY_STATUS(db.run(kVersion2));
  if (version > kTasksVersion)
    return fail(Code::kUnsupported,
                fmt::format("it has version {}, this build knows {}: a newer Kiln wrote it",
                            version, kTasksVersion));
  return db;
}

}  // namespace

Result<std::unique_ptr<PendingTaskStore>> PendingTaskStore::open(const Path& file) {
  std::string warning;
  Result<Database> db = open_tasks(file);
  if (!db && db.error().code == Code::kCorruption) {
    TRY(const Path aside, set_database_aside(file));
    warning = fmt::format("{} is damaged ({}); it was moved to {}: programs queued there are lost",
                          file.string(), db.error().message, aside.string());
    db = open_tasks(file);
  }
  if (!db) return fail(db.error().within(file.string()));
  return std::unique_ptr<PendingTaskStore>(
      new PendingTaskStore(*std::move(db), std::move(warning)));
}

PendingTaskStore::PendingTaskStore(Database db, std::string warning)
    : warning_(std::move(warning)), db_(std::move(db)), thread_([this] { run(); }) {}

PendingTaskStore::~PendingTaskStore() {
  {
    const std::lock_guard lock(mu_);
    stopping_ = true;
  }
  work_.notify_one();
  thread_.join();
}

void PendingTaskStore::put(const PendingTask& task, std::string graph_text, Done done) {
  const size_t bytes = graph_text.size();
  submit(
      bytes,
      [fresh = without_failure(task), text = std::move(graph_text)](Database& db) {
        return write(db, fresh, text);
      },
      std::move(done));
}

void PendingTaskStore::set_lost(const PendingTask& task, Done done) {
  submit(
      0,
      [id = id_of(task), lost = task.lost](Database& db) -> Status {
        Query query(db, kOne);
        TRY(const bool found, query.bind(id).next());
        if (!found) return {};
        TRY(Row row, read_row(query));
        row.task.lost = lost;
        return Query(db, "UPDATE flights SET lost = ?, seal = ? WHERE id = ?")
            .bind(lost)
            .bind(row.seal())
            .bind(id)
            .run();
      },
      std::move(done));
}

void PendingTaskStore::remove(const PendingTask& task, Done done) {
  submit(
      0,
      [id = id_of(task)](Database& db) {
        return Query(db, "DELETE FROM flights WHERE id = ?").bind(id).run();
      },
      std::move(done));
}

void PendingTaskStore::remove_damaged(Done done) {
  submit(
      0,
      [](Database& db) -> Status {
        TRY(const Rows rows, read_all(db));
        for (const int64_t turn : rows.damaged)
          TRY_STATUS(Query(db, "DELETE FROM flights WHERE turn = ?").bind(turn).run());
        return {};
      },
      std::move(done));
}

void PendingTaskStore::fail_for_good(const PendingTask& task, Error why, Done done) {
  const size_t bytes = why.message.size();
  PendingTask failed = task;
  failed.failure = std::move(why);
  submit(
      bytes,
      [failed = std::move(failed)](Database& db) -> Status {
        TRY(const bool known, has(db, failed));
        return known ? write(db, failed, "") : Status();
      },
      std::move(done));
}

void PendingTaskStore::submit(size_t bytes, std::function<Status(Database&)> write_row, Done done) {
  {
    const std::lock_guard lock(mu_);
    if (queued_bytes_ + bytes > kMaxQueuedTaskBytes) {
      bytes = 0;
      write_row = [](Database&) -> Status {
        return fail(Error{Code::kOverloaded, "too many queued programs to write", 1000});
      };
    }
    queued_bytes_ += bytes;
    queue_.push_back({bytes, std::move(write_row), std::move(done)});
  }
  work_.notify_one();
}

void PendingTaskStore::flush() {
  std::unique_lock lock(mu_);
  idle_.wait(lock, [this] { return queue_.empty() && !writing_; });
}

void PendingTaskStore::run() {
  std::unique_lock lock(mu_);
  for (;;) {
    work_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Job job = std::move(queue_.front());
    queue_.pop_front();
    queued_bytes_ -= job.bytes;
    writing_ = true;
    lock.unlock();
    Status status;
    {
      const std::lock_guard db_lock(db_mu_);
      status = job.write(db_);  // one statement is one transaction
    }
    if (job.done) job.done(std::move(status));
    lock.lock();
    writing_ = false;
    if (queue_.empty()) idle_.notify_all();
  }
}

Result<PendingTaskStore::Tasks> PendingTaskStore::all() {
  const std::lock_guard lock(db_mu_);
  TRY(Rows rows, read_all(db_));
  return Tasks{std::move(rows.tasks), std::ssize(rows.damaged)};
}

Result<std::string> PendingTaskStore::graph_text(const PendingTask& task) {
  const std::lock_guard lock(db_mu_);
  Query query(db_, kOne);
  TRY(const bool found, query.bind(id_of(task)).next());
  if (!found) return fail(Code::kNotFound, "no such program is queued");
  TRY(const Row row, read_row(query));
  if (Digest::of(query.bytes(kTaskColumns)) != row.text_digest)
    return fail(Code::kCorruption, "the graph of a queued program is damaged: queue it again");
  return std::string(query.bytes(kTaskColumns));
}

}  // namespace kiln
