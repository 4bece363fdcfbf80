// Format of artifacts.sqlite, version 1 (PRAGMA user_version). Times are Unix time in ms.
//
//   artifacts  id, kind, key, audience, owner, bytes, made_ms, used_ms, signer, signature
//   contents   id, value
//
// audience: Audience::to_text(); kind, key and audience are unique together. bytes: what the row
// counts for. signer and signature: an Ed25519 public key and its signature of signed_artifact().
// Values lie apart, so that a use is noted without writing them again.
#include "cache/artifact_store.h"

#include <fmt/core.h>

#include "cache/damaged.h"
#include "compiler_core/base/clock.h"

namespace kiln {
namespace {

constexpr int64_t kVersion = 1;
constexpr size_t kMaxQueuedJobs = 20'000;
constexpr size_t kMaxQueuedBytes = size_t{256} << 20;
constexpr int64_t kRowBytes = 512;           // of an entry, beside its key and value
constexpr int64_t kUseNotedEachMs = 60'000;  // at most so often, for each entry

constexpr char kSchema[] = R"sql(
PRAGMA auto_vacuum = INCREMENTAL;
BEGIN IMMEDIATE;
CREATE TABLE artifacts (
  id INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, audience TEXT NOT NULL,
  owner TEXT NOT NULL, bytes INTEGER NOT NULL, made_ms INTEGER NOT NULL, used_ms INTEGER NOT NULL,
  signer BLOB NOT NULL, signature BLOB NOT NULL, UNIQUE (kind, key, audience));
CREATE INDEX artifacts_by_use ON artifacts (used_ms);
CREATE TABLE contents (id INTEGER PRIMARY KEY, value BLOB NOT NULL);
PRAGMA user_version = 1;
COMMIT;
)sql";

Result<Database> open_database(const Path& file) {
  TRY(Database db, Database::open(file, Database::Access::kReadWrite));
  int64_t version = 0;
  {
    Query query(db, "PRAGMA user_version");
    TRY([[maybe_unused]] const bool row, query.next());
    version = query.integer(0);
  }
  if (version > kVersion)
    return fail(Code::kUnsupported,
                fmt::format("it has version {}, this build knows {}: a newer Kiln wrote it",
                            version, kVersion));
  if (version == 0) TRY_STATUS(db.run(kSchema));
  // NORMAL: what a power failure may cost are the last entries of a cache.
  TRY_STATUS(db.run("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"));
  TRY_STATUS(check_soundness(db));
  TRY_STATUS(db.run("CREATE INDEX IF NOT EXISTS artifacts_of_owner ON artifacts (owner, used_ms)"));
  TRY_STATUS(db.keep_pages(4 << 20));
  return db;
}

tl::unexpected<Error> no_such(const ArtifactId& id) {
  return fail(Code::kNotFound, "no artifact of the kind " + id.kind + " has this key");
}

}  // namespace

Result<std::unique_ptr<ArtifactStore>> ArtifactStore::open(const Path& file, SigningKey key,
                                                           Options options) {
  if (!options.now_ms) options.now_ms = unix_ms;
  std::string warning;
  Result<Database> db = open_database(file);
  if (!db && db.error().code == Code::kCorruption) {
    TRY(const Path aside, set_database_aside(file));
    warning = fmt::format("{} is damaged ({}); it was moved to {}: artifacts kept there are lost",
                          file.string(), db.error().message, aside.string());
    db = open_database(file);
  }
  if (!db) return fail(db.error().within(file.string()));
  std::unique_ptr<ArtifactStore> store(
      new ArtifactStore(*std::move(db), std::move(key), std::move(options), std::move(warning)));
  const auto ready = [&]() -> Status {
    TRY_STATUS(store->count());
    TRY_STATUS(store->make_room(0, ""));
    return store->db_.run("PRAGMA incremental_vacuum;");
  }();
  if (!ready) return fail(ready.error().within(file.string()));
  store->thread_ = std::thread([running = store.get()] { running->run(); });
  return store;
}

ArtifactStore::ArtifactStore(Database db, SigningKey key, Options options, std::string warning)
    : key_(std::move(key)),
      options_(std::move(options)),
      warning_(std::move(warning)),
      db_(std::move(db)) {}

ArtifactStore::~ArtifactStore() {
  {
    const std::lock_guard lock(mu_);
    stopping_ = true;
  }
  work_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void ArtifactStore::get(ArtifactId id, Viewer viewer, Got got) {
  const size_t bytes = id.key.size();
  submit(bytes, [this, id = std::move(id), viewer = std::move(viewer),
                 got = std::move(got)](const Status& accepted) {
    got(accepted ? read(id, viewer) : fail(accepted.error()));
  });
}

void ArtifactStore::put(ArtifactId id, std::string value, Audience audience, std::string owner,
                        Done done) {
  const size_t bytes = id.key.size() + value.size();
  submit(bytes, [this, id = std::move(id), value = std::move(value), audience = std::move(audience),
                 owner = std::move(owner), done = std::move(done)](const Status& accepted) {
    Status status = accepted ? in_transaction([&] { return write(id, value, audience, owner); })
                             : fail(accepted.error());
    if (done) done(std::move(status));
  });
}

void ArtifactStore::take_back(std::string owner, int64_t until_ms,
                              std::function<void(Result<int64_t>)> done) {
  submit(0, [this, owner = std::move(owner), until_ms,
             done = std::move(done)](const Status& accepted) {
    int64_t removed = 0;
    const Status status = !accepted ? fail(accepted.error()) : in_transaction([&]() -> Status {
      TRY_STATUS(Query(db_,
                       "DELETE FROM contents WHERE id IN"
                       " (SELECT id FROM artifacts WHERE owner = ? AND made_ms < ?)")
                     .bind_text(owner)
                     .bind(until_ms)
                     .run());
      TRY_STATUS(Query(db_, "DELETE FROM artifacts WHERE owner = ? AND made_ms < ?")
                     .bind_text(owner)
                     .bind(until_ms)
                     .run());
      removed = db_.changes();
      return count();
    });
    if (done) done(status.map([&] { return removed; }));
  });
}

std::string ArtifactStore::signature_of(const ArtifactId& id, const std::string& value) const {
  return key_.sign(signed_artifact(id.kind, id.key, value)).bytes;
}

void ArtifactStore::submit(size_t bytes, std::function<void(const Status&)> work) {
  {
    const std::lock_guard lock(mu_);
    if (queue_.size() >= kMaxQueuedJobs || queued_bytes_ + bytes > kMaxQueuedBytes) {
      bytes = 0;
      work = [refused = std::move(work)](const Status&) {
        refused(
            fail(Error{Code::kOverloaded, "too many artifacts are being read or written", 1000}));
      };
    }
    queued_bytes_ += bytes;
    queue_.push_back({bytes, std::move(work)});
  }
  work_.notify_one();
}

void ArtifactStore::flush() {
  std::unique_lock lock(mu_);
  idle_.wait(lock, [this] { return queue_.empty() && !working_; });
}

void ArtifactStore::run() {
  std::unique_lock lock(mu_);
  for (;;) {
    work_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Job job = std::move(queue_.front());
    queue_.pop_front();
    queued_bytes_ -= job.bytes;
    working_ = true;
    lock.unlock();
    job.work({});
    job = {};
    lock.lock();
    working_ = false;
    if (queue_.empty()) idle_.notify_all();
  }
}

std::map<std::string, ArtifactTotals> ArtifactStore::totals() const {
  const std::lock_guard lock(mu_);
  return totals_;
}

Status ArtifactStore::count() {
  bytes_of_.clear();
  Query owners(db_, "SELECT owner, sum(bytes) FROM artifacts GROUP BY owner");
  for (;;) {
    TRY(const bool row, owners.next());
    if (!row) break;
    bytes_of_[std::string(owners.bytes(0))] = owners.integer(1);
  }
  Query query(db_, "SELECT kind, count(*), sum(bytes) FROM artifacts GROUP BY kind");
  const std::lock_guard lock(mu_);
  for (auto& [kind, totals] : totals_) totals.entries = totals.bytes = 0;
  for (;;) {
    TRY(const bool row, query.next());
    if (!row) return {};
    ArtifactTotals& totals = totals_[std::string(query.bytes(0))];
    totals.entries = query.integer(1);
    totals.bytes = query.integer(2);
  }
}

// A change that failed was undone, and the totals with it.
Status ArtifactStore::in_transaction(const std::function<Status()>& change) {
  TRY_STATUS(db_.run("BEGIN IMMEDIATE"));
  Status status = change();
  if (status) status = db_.run("COMMIT");
  if (status) return status;
  (void)db_.run("ROLLBACK");
  (void)count();
  return status;
}

Result<KeptArtifact> ArtifactStore::read(const ArtifactId& id, const Viewer& viewer) {
  Row row;
  int64_t used_ms = 0;
  Signature signature;
  {
    Query query(db_,
                "SELECT id, audience, used_ms, signer, signature, bytes, owner FROM artifacts"
                " WHERE kind = ? AND key = ? ORDER BY made_ms DESC");
    query.bind_text(id.kind).bind_text(id.key);
    for (bool admitted = false; !admitted;) {
      TRY(const bool found, query.next());
      if (!found) return no_such(id);
      const Audience audience = Audience::parse(query.bytes(1));
      admitted = audience.is_all() || audience.admits(viewer);
      row = {query.integer(0), query.integer(5), id.kind, std::string(query.bytes(6))};
      used_ms = query.integer(2);
      signature = {std::string(query.bytes(3)), std::string(query.bytes(4))};
    }
  }
  KeptArtifact artifact{{}, signature.bytes};
  {
    Query query(db_, "SELECT value FROM contents WHERE id = ?");
    TRY(const bool found, query.bind(row.id).next());
    if (found) artifact.value = query.bytes(0);
  }
  if (!verify_signature(signed_artifact(id.kind, id.key, artifact.value), signature,
                        key_.public_key(), "the artifact")) {
    damaged(id.kind);
    TRY_STATUS(in_transaction([&] { return remove(row); }));
    return no_such(id);
  }
  const int64_t now_ms = options_.now_ms();
  if (now_ms - used_ms >= kUseNotedEachMs)
    (void)Query(db_, "UPDATE artifacts SET used_ms = ? WHERE id = ?")
        .bind(now_ms)
        .bind(row.id)
        .run();
  return artifact;
}

Status ArtifactStore::write(const ArtifactId& id, const std::string& value,
                            const Audience& audience, const std::string& owner) {
  const auto bytes = kRowBytes + static_cast<int64_t>(id.key.size() + value.size());
  if (bytes > options_.max_bytes)
    return fail(Code::kInvalidArgument,
                fmt::format("an artifact of {} bytes is larger than all that is kept of them ({})",
                            bytes, options_.max_bytes));
  const std::string admits = audience.to_text();
  Row before;
  {
    Query query(
        db_, "SELECT id, bytes, owner FROM artifacts WHERE kind = ? AND key = ? AND audience = ?");
    TRY(const bool found, query.bind_text(id.kind).bind_text(id.key).bind_text(admits).next());
    if (found) before = {query.integer(0), query.integer(1), id.kind, std::string(query.bytes(2))};
  }
  if (before.id != 0) TRY_STATUS(remove(before));
  TRY_STATUS(make_room(bytes, owner));
  const Signature signature = key_.sign(signed_artifact(id.kind, id.key, value));
  const int64_t now_ms = options_.now_ms();
  TRY_STATUS(Query(db_,
                   "INSERT INTO artifacts (kind, key, audience, owner, bytes, made_ms, used_ms,"
                   " signer, signature) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")
                 .bind_text(id.kind)
                 .bind_text(id.key)
                 .bind_text(admits)
                 .bind_text(owner)
                 .bind(bytes)
                 .bind(now_ms)
                 .bind(now_ms)
                 .bind_blob(signature.signer)
                 .bind_blob(signature.bytes)
                 .run());
  TRY_STATUS(Query(db_, "INSERT INTO contents (id, value) VALUES (last_insert_rowid(), ?)")
                 .bind_blob(value)
                 .run());
  bytes_of_[owner] += bytes;
  const std::lock_guard lock(mu_);
  ArtifactTotals& totals = totals_[id.kind];
  ++totals.entries;
  totals.bytes += bytes;
  return {};
}

// Removes what was not used for the longest until there is room for so many bytes more of `owner`:
// each time of the user who then has the most, so that nobody is left with less than an equal share
// for the sake of others.
Status ArtifactStore::make_room(int64_t bytes, const std::string& owner) {
  for (;;) {
    int64_t held = 0, most = -1;
    std::string of;
    for (const auto& [user, used] : bytes_of_) {
      held += used;
      const int64_t then = used + (user == owner ? bytes : 0);
      if (used == 0 || then <= most) continue;
      most = then;
      of = user;
    }
    if (held == 0 || held + bytes <= options_.max_bytes) return {};
    Row oldest;
    {
      Query query(
          db_,
          "SELECT id, bytes, kind FROM artifacts WHERE owner = ? ORDER BY used_ms, id LIMIT 1");
      TRY(const bool found, query.bind_text(of).next());
      if (!found) return fail(Code::kInternal, "artifacts that are counted and not there");
      oldest = {query.integer(0), query.integer(1), std::string(query.bytes(2)), of};
    }
    TRY_STATUS(remove(oldest));
    const std::lock_guard lock(mu_);
    ++totals_[oldest.kind].evicted;
  }
}

Status ArtifactStore::remove(const Row& row) {
  TRY_STATUS(Query(db_, "DELETE FROM artifacts WHERE id = ?").bind(row.id).run());
  TRY_STATUS(Query(db_, "DELETE FROM contents WHERE id = ?").bind(row.id).run());
  bytes_of_[row.owner] -= row.bytes;
  const std::lock_guard lock(mu_);
  --totals_[row.kind].entries;
  totals_[row.kind].bytes -= row.bytes;
  return {};
}

void ArtifactStore::damaged(const std::string& kind) {
  const std::lock_guard lock(mu_);
  ++totals_[kind].damaged;
}

Result<std::vector<ListedArtifact>> ArtifactStore::list(const Path& file, const std::string& kind,
                                                        int64_t limit) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored))
    return fail(Code::kNotFound, file.string() + " is not there: no artifact was ever put");
  TRY(Database db, Database::open(file, Database::Access::kReadOnly));
  Query query(db,
              "SELECT kind, key, audience, owner, bytes, made_ms, used_ms FROM artifacts"
              " WHERE substr(kind, 1, length(?1)) = ?1 ORDER BY used_ms DESC, kind, key LIMIT ?2");
  query.bind_text(kind).bind(limit > 0 ? limit : -1);
  std::vector<ListedArtifact> listed;
  for (;;) {
    TRY(const bool found, query.next());
    if (!found) return listed;
    listed.push_back({{std::string(query.bytes(0)), std::string(query.bytes(1))},
                      Audience::parse(query.bytes(2)),
                      std::string(query.bytes(3)),
                      query.integer(4),
                      query.integer(5),
                      query.integer(6)});
  }
}

}  // namespace kiln
