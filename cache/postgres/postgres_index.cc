#include "cache/postgres/postgres_index.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "cache/postgres/bytes_in_flight.h"
#include "cache/sealed_rows.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFirstBackoff{1'000}, kLongestBackoff{60'000};
constexpr int kClaimTries = 40;
constexpr std::chrono::milliseconds kClaimAgain{50};

// The blobs that no kernel and no program needs.
constexpr char kNotHeld[] =
    "NOT EXISTS (SELECT FROM kernels k WHERE k.blob = blobs.digest)"
    " AND NOT EXISTS (SELECT FROM program_blobs p WHERE p.digest = blobs.digest)";

// A claimed blob is left alone for ten minutes: by then a kernel or a program needs it.
constexpr char kClaim[] =
    "INSERT INTO blobs AS b SELECT d, encode(d, 'hex') || '.' || nextval('object_number'), n, 'P',"
    " clock_timestamp() + interval '10 min' FROM unnest($1::bytea[], $2::bigint[]) AS t (d, n)"
    " ON CONFLICT (digest) DO UPDATE SET until = greatest(b.until, excluded.until),"
    " state = CASE b.state WHEN 'D' THEN 'P' ELSE b.state END WHERE b.state <> 'X'"
    " RETURNING digest, object, state = 'P'";

// The kernels that a program may run, each once.
std::vector<Digest> kernels_of(const PostgresIndex::ProgramRow& program) {
  const std::vector<Digest> keys = keys_in(program.manifest);
  std::set<Digest> kernels(keys.begin(), keys.end());
  kernels.erase(program.key);
  return {kernels.begin(), kernels.end()};
}

}  // namespace

PostgresIndex::PostgresIndex(PgConnection connection, Term& term, ObjectStore& objects,
                             Settings settings)
    : connection_(std::move(connection)),
      term_(term),
      objects_(objects),
      settings_(std::move(settings)) {}

// ---- Transactions ----

// A statement on a new connection would be outside of the transaction that the caller thinks it is in.
Result<PgRows> PostgresIndex::run(const char* sql, const PgValues& values) {
  if (in_transaction_ && !connection_.is_connected())
    return fail(Code::kUnavailable, "PostgreSQL: the connection broke in a transaction");
  return connection_.run(sql, values);
}

Result<PgRows> PostgresIndex::run_long(const char* sql, const PgValues& values) {
  connection_.lazily("SET LOCAL statement_timeout = '60s'");
  connection_.set_patience(std::chrono::seconds(65));
  auto rows = run(sql, values);
  connection_.set_patience(PgConnection::kPatience);
  return rows;
}

Status PostgresIndex::begin() {
  connection_.drop_lazy();
  if (!term_.is_ours())
    return fail(Code::kUnavailable, "another coordinator writes this store by now");
  connection_.lazily("BEGIN");
  TRY(const PgRows fence, connection_.run(Term::kFence, term_.fence_values()));
  in_transaction_ = true;
  if (fence.size() == 1) return {};
  term_.lose();
  return fail(Code::kUnavailable, "another coordinator writes this store by now");
}

Status PostgresIndex::begin_together() {
  TRY_STATUS(begin());
  together_ = true;
  return {};
}

Status PostgresIndex::write(const char* sql, PgValues values, int64_t rows, const char* otherwise) {
  if (together_) {
    connection_.lazily(sql, std::move(values), rows);
    return {};
  }
  TRY(const PgRows written, run(sql, values));
  if (rows == PgConnection::kAnyRows || written.changed() == rows) return {};
  return fail(Code::kUnavailable, otherwise);
}

// The server answers COMMIT of a transaction in which something failed with ROLLBACK, and no error.
Status PostgresIndex::commit() {
  // Heard first: a wrong number of rows is no error to the server, which would commit.
  if (together_) TRY_STATUS(run("SELECT"));
  TRY(const PgRows committed, run("COMMIT"));
  in_transaction_ = together_ = false;
  if (committed.tag() != "COMMIT")
    return fail(Code::kUnavailable, "PostgreSQL rolled the transaction back");
  return {};
}

void PostgresIndex::roll_back() {
  connection_.drop_lazy();
  if (connection_.is_connected() && !connection_.run("ROLLBACK")) connection_.disconnect();
  in_transaction_ = together_ = false;
}

Status PostgresIndex::begin_part() {
  connection_.lazily("SAVEPOINT part");
  return {};
}

Status PostgresIndex::end_part() {
  connection_.lazily("RELEASE part");
  return {};
}

Status PostgresIndex::undo_part() {
  TRY_STATUS(run("ROLLBACK TO part"));
  return end_part();
}

// ---- Blobs ----

Status PostgresIndex::claim(const std::vector<std::shared_ptr<Upload>>& uploads,
                            std::set<Digest>& to_upload) {
  std::map<Digest, int64_t> unclaimed;
  for (const auto& upload : uploads) unclaimed[upload->digest] = std::ssize(upload->bytes);
  std::map<Digest, std::string> objects;
  for (int tries = 0; !unclaimed.empty(); ++tries) {
    if (tries == kClaimTries)
      return fail(Code::kUnavailable, "the blob's last copy is still being removed");
    if (tries > 0) std::this_thread::sleep_for(kClaimAgain);
    std::vector<Digest> digests;
    std::vector<int64_t> sizes;
    for (const auto& [digest, bytes] : unclaimed) {
      digests.push_back(digest);
      sizes.push_back(bytes);
    }
    TRY(const PgRows claimed, connection_.run(kClaim, PgValues().add(digests).add(sizes)));
    for (int64_t row = 0; row < claimed.size(); ++row) {
      TRY(const Digest digest, claimed.digest(row, 0));
      objects[digest] = claimed.bytes(row, 1);
      if (claimed.boolean(row, 2)) to_upload.insert(digest);
      unclaimed.erase(digest);
    }
  }
  for (const auto& upload : uploads) upload->object = objects[upload->digest];
  return {};
}

void PostgresIndex::prepare(const std::vector<std::shared_ptr<Upload>>& uploads) {
  connection_.drop_lazy();
  std::set<Digest> to_upload;
  if (const Status claimed = claim(uploads, to_upload); !claimed) {
    for (const auto& upload : uploads) upload->outcome = claimed;
    return;
  }
  upload(uploads, to_upload);
}

void PostgresIndex::upload(const std::vector<std::shared_ptr<Upload>>& uploads,
                           std::set<Digest>& to_upload) {
  BytesInFlight flight;
  std::map<Digest, Status> outcomes;
  for (const auto& upload : uploads) {
    if (to_upload.erase(upload->digest) == 0) continue;
    if (Clock::now() < objects_again_) {
      outcomes[upload->digest] =
          fail(Code::kUnavailable, objects_.describe() + " is away: the binary is not stored");
      continue;
    }
    objects_.put(upload->object, upload->bytes, flight.hearing(upload->digest));
    // The first one finds out.
    if (objects_backoff_.count() > 0) objects_again_ = Clock::now() + objects_backoff_;
  }
  const std::map<Digest, Status> landed = flight.land();
  const bool away = std::ranges::any_of(landed, [](const auto& each) {
    return !each.second && each.second.error().code == Code::kUnavailable;
  });
  if (away)
    objects_backoff_ = std::clamp(objects_backoff_ * 2, kFirstBackoff, kLongestBackoff);
  else if (!landed.empty())
    objects_backoff_ = {};
  if (!landed.empty()) objects_again_ = Clock::now() + objects_backoff_;
  outcomes.insert(landed.begin(), landed.end());
  for (const auto& upload : uploads)
    if (const auto outcome = outcomes.find(upload->digest); outcome != outcomes.end())
      upload->outcome = outcome->second;
}

Status PostgresIndex::put_blob(const Upload& upload) {
  if (!upload.outcome)
    return fail(Error{
        upload.outcome.error().code == Code::kOverloaded ? Code::kOverloaded : Code::kUnavailable,
        upload.outcome.error().message, upload.outcome.error().retry_after_ms});
  return write(
      "UPDATE blobs SET state = 'L', until = clock_timestamp() + interval '10 min'"
      " WHERE digest = $1 AND object = $2 AND state <> 'X'",
      PgValues().add(upload.digest).add_text(upload.object), 1,
      "the blob was removed while it was put");
}

Status PostgresIndex::doom(const Digest& digest, const std::string& object) {
  TRY_STATUS(
      run("UPDATE blobs SET state = 'D', until = clock_timestamp()"
          " WHERE digest = $1 AND object = $2 AND state = 'L'",
          PgValues().add(digest).add_text(object)));
  return {};
}

Result<std::vector<PostgresIndex::LiveObject>> PostgresIndex::objects_beside(const Digest& digest) {
  TRY(const PgRows rows, run("(SELECT digest, object FROM blobs WHERE state = 'L' AND digest > $1"
                             " ORDER BY digest LIMIT 2)"
                             " UNION ALL"
                             " (SELECT digest, object FROM blobs WHERE state = 'L' AND digest < $1"
                             " ORDER BY digest DESC LIMIT 2)",
                             PgValues().add(digest)));
  std::vector<LiveObject> objects;
  for (int64_t row = 0; row < rows.size(); ++row) {
    TRY(const Digest beside, rows.digest(row, 0));
    objects.push_back({beside, std::string(rows.bytes(row, 1))});
  }
  return objects;
}

// `at_once`: also what was claimed lately.
Status PostgresIndex::doom_unneeded(const std::vector<Digest>& blobs, bool at_once,
                                    TakenBack* taken) {
  const std::string doom = fmt::format(
      "UPDATE blobs SET state = 'D', until = clock_timestamp() + $3 * interval '1 second'"
      " WHERE digest = ANY($1) AND state IN ('P', 'L') AND (until <= clock_timestamp() OR $2)"
      " AND {} RETURNING digest, bytes",
      kNotHeld);
  TRY(const PgRows doomed,
      run(doom.c_str(), PgValues().add(blobs).add(at_once).add(settings_.doomed_s)));
  for (int64_t row = 0; taken != nullptr && row < doomed.size(); ++row) {
    TRY(const Digest digest, doomed.digest(row, 0));
    taken->blobs.push_back(digest);
    taken->bytes += doomed.integer(row, 1);
  }
  return {};
}

Status PostgresIndex::sweep(int limit) {
  const std::string doom = fmt::format(
      "UPDATE blobs SET state = 'D', until = clock_timestamp() + $1 * interval '1 second'"
      " WHERE state IN ('P', 'L') AND until < clock_timestamp() AND {}",
      kNotHeld);
  TRY_STATUS(run_long(doom.c_str(), PgValues().add(settings_.doomed_s)));
  const std::string go = fmt::format(
      "UPDATE blobs SET state = 'X' WHERE digest IN (SELECT digest FROM blobs WHERE"
      " state = 'D' AND until < clock_timestamp() AND {} LIMIT $1)",
      kNotHeld);
  TRY_STATUS(run(go.c_str(), PgValues().add(int64_t{limit})));
  return {};
}

// ---- Rows ----

Status PostgresIndex::put_kernel(const StoredKernel& stored) {
  const std::string kernel = kernel_to_text(stored);
  const std::string target = target_to_text(stored.tuned_on);
  TRY_STATUS(write("UPDATE blobs SET until = clock_timestamp() WHERE digest = $1 AND state = 'L'",
                   PgValues().add(stored.kernel.blob), 1, "the kernel's blob is not stored"));
  if (stored.kernel.report.best_us > 0)  // a guess that was never timed has won nothing
    connection_.lazily(
        "INSERT INTO winners (workload, schedule) VALUES ($1, $2) ON CONFLICT (workload, schedule)"
        " DO UPDATE SET id = nextval('winner_number')",
        PgValues().add(stored.kernel.workload).add_text(stored.kernel.schedule));
  return write(
      "INSERT INTO kernels (key, blob, kernel, target, seal, epoch, used_hour)"
      " VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (key) DO UPDATE SET blob = excluded.blob,"
      " kernel = excluded.kernel, target = excluded.target, seal = excluded.seal,"
      " epoch = excluded.epoch, used_hour = excluded.used_hour",
      PgValues()
          .add(stored.kernel.key)
          .add(stored.kernel.blob)
          .add_text(kernel)
          .add_bytes(target)
          .add(seal_kernel(stored.kernel.key, kernel, target))
          .add(epoch())
          .add(hour(settings_.now_ms())));
}

Status PostgresIndex::put_program(const ProgramRow& row) {
  TRY_STATUS(write("SELECT digest FROM blobs WHERE digest = ANY($1) AND state = 'L'",
                   PgValues().add(row.blobs), std::ssize(row.blobs),
                   "a blob of the program is not stored"));
  Audience for_all = row.audience;
  // Together, a stored program of another audience is an error, and this runs again apart.
  if (!together_) {
    TRY(const PgRows before,
        run("SELECT audience FROM programs WHERE key = $1", PgValues().add(row.key)));
    if (before.size() == 1) for_all.add(Audience::parse(before.bytes(0, 0)));
  }
  const std::string blobs = joined(row.blobs), audience = for_all.to_text();
  TRY_STATUS(write(
      "INSERT INTO programs (key, manifest, blobs, stamp, audience, seal, epoch, pinned, used_hour)"
      " VALUES ($1, $2, $3, $4, $5, $6, $7, EXISTS (SELECT FROM pins WHERE key = $1), $8)"
      " ON CONFLICT (key) DO UPDATE SET manifest = excluded.manifest, blobs = excluded.blobs,"
      " stamp = excluded.stamp, audience = excluded.audience, seal = excluded.seal,"
      " epoch = excluded.epoch, pinned = excluded.pinned, used_hour = excluded.used_hour"
      " WHERE NOT $9 OR programs.audience = excluded.audience",
      PgValues()
          .add(row.key)
          .add_text(row.manifest)
          .add_bytes(blobs)
          .add_text(row.stamp)
          .add_text(audience)
          .add(seal_program(row.key, row.manifest, blobs, audience))
          .add(epoch())
          .add(hour(settings_.now_ms()))
          .add(together_),
      1, "the program was not written"));
  const PgValues key = PgValues().add(row.key);
  connection_.lazily("DELETE FROM program_blobs WHERE program = $1", key);
  connection_.lazily("DELETE FROM program_kernels WHERE program = $1", key);
  connection_.lazily("INSERT INTO program_blobs SELECT $1, d FROM unnest($2::bytea[]) AS t (d)",
                     PgValues().add(row.key).add(row.blobs));
  return write("INSERT INTO program_kernels SELECT $1, k FROM unnest($2::bytea[]) AS t (k)",
               PgValues().add(row.key).add(kernels_of(row)));
}

Status PostgresIndex::put_record(const TuningRecord& record) {
  return write(
      "INSERT INTO records (kernel_key, workload, target, schedule, verdict, log, samples,"
      " binary_digest, worker, taken_at_ms, seed, sentinel_us, template_version, owner, seal)"
      " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"
      " ON CONFLICT (seal) DO NOTHING",
      PgValues()
          .add(record.kernel_key)
          .add(record.workload)
          .add_bytes(target_to_text(record.target))
          .add_bytes(record.schedule.to_string())
          .add(static_cast<int64_t>(record.verdict))
          .add_bytes(record.log)
          .add_bytes(as_bytes(record.measurement.samples_us))
          .add(record.binary)
          .add_bytes(record.worker)
          .add(record.taken_at_ms)
          .add(static_cast<int64_t>(record.seed))
          .add_real(record.sentinel_us)
          .add(int64_t{record.template_version})
          .add_bytes(record.owner)
          .add(seal_record(record)));
}

Status PostgresIndex::put_shape_generic_key(const Digest& workload, const ShapeGenericKey& key) {
  return write(
      "INSERT INTO kin VALUES ($1, $2, $3) ON CONFLICT (workload) DO UPDATE"
      " SET kin = excluded.kin, sizes = excluded.sizes"
      " WHERE kin.kin <> excluded.kin OR kin.sizes <> excluded.sizes",
      PgValues().add(workload).add(key.digest).add_bytes(as_bytes(key.sizes)));
}

Status PostgresIndex::remove(const Digest& key) {
  connection_.lazily("DELETE FROM programs WHERE key = $1", PgValues().add(key));
  TRY_STATUS(run("DELETE FROM kernels WHERE key = $1", PgValues().add(key)));
  return {};
}

Status PostgresIndex::pin(const Digest& program) {
  TRY(const PgRows pinned,
      run("UPDATE programs SET pinned = true WHERE key = $1", PgValues().add(program)));
  if (pinned.changed() == 0)
    return fail(Code::kNotFound, "no program " + program.hex() + " is stored");
  TRY_STATUS(run("INSERT INTO pins VALUES ($1, clock_timestamp()) ON CONFLICT DO NOTHING",
                 PgValues().add(program)));
  return {};
}

Status PostgresIndex::unpin(const Digest& program) {
  TRY(const PgRows gone, run("DELETE FROM pins WHERE key = $1", PgValues().add(program)));
  if (gone.changed() == 0)
    return fail(Code::kNotFound, "program " + program.hex() + " is not pinned");
  TRY_STATUS(run("UPDATE programs SET pinned = false WHERE key = $1", PgValues().add(program)));
  return {};
}

Status PostgresIndex::note(const AdminAct& given) {
  const AdminAct act = in_utf8(given);
  TRY_STATUS(
      run("INSERT INTO acts (at_ms, coordinator, who, request, done, outcome)"
          " VALUES ($1, $2, $3, $4, $5, $6)",
          PgValues()
              .add(act.at_ms)
              .add_text(act.coordinator)
              .add_text(act.who)
              .add_text(act.request)
              .add(act.done)
              .add_text(act.outcome)));
  TRY_STATUS(run("DELETE FROM acts WHERE id <= (SELECT max(id) FROM acts) - $1",
                 PgValues().add(kMaxActs)));
  return {};
}

// At most one update of an index entry an hour.
Status PostgresIndex::touch(const std::vector<Digest>& programs,
                            const std::vector<Digest>& kernels) {
  const int64_t now = hour(settings_.now_ms());
  connection_.lazily("UPDATE programs SET used_hour = $2 WHERE key = ANY($1) AND used_hour < $2",
                     PgValues().add(programs).add(now));
  TRY_STATUS(run("UPDATE kernels SET used_hour = $2 WHERE key = ANY($1) AND used_hour < $2",
                 PgValues().add(kernels).add(now)));
  return {};
}

Result<int64_t> PostgresIndex::programs_not_of(const Digest& stamp) {
  TRY(const PgRows counted, run_long("SELECT count(*) FROM programs WHERE stamp <> $1",
                                     PgValues().add_text(stamp.hex())));
  return counted.integer(0, 0);
}

Result<bool> PostgresIndex::has_later(bool is_program, const Digest& key, uint64_t epoch) {
  TRY(const PgRows rows, run(is_program ? "SELECT FROM programs WHERE key = $1 AND epoch > $2"
                                        : "SELECT FROM kernels WHERE key = $1 AND epoch > $2",
                             PgValues().add(key).add(static_cast<int64_t>(epoch))));
  return rows.size() > 0;
}

Result<std::vector<Digest>> PostgresIndex::not_live(const std::vector<Digest>& blobs) {
  TRY(const PgRows rows, run("SELECT d FROM unnest($1::bytea[]) AS t (d) WHERE NOT EXISTS"
                             " (SELECT FROM blobs WHERE digest = d AND state = 'L')",
                             PgValues().add(blobs)));
  std::vector<Digest> dead;
  for (int64_t row = 0; row < rows.size(); ++row) {
    TRY(const Digest digest, rows.digest(row, 0));
    dead.push_back(digest);
  }
  return dead;
}

// ---- Room ----

Result<PostgresIndex::Totals> PostgresIndex::totals() {
  TRY(const PgRows sums, run("SELECT programs, kernels, records, blob_bytes, bytes FROM totals"));
  return Totals{sums.integer(0, 0), sums.integer(0, 1), sums.integer(0, 2), sums.integer(0, 3),
                sums.integer(0, 4)};
}

Result<PostgresIndex::Evicted> PostgresIndex::evict(int64_t bytes, int64_t before_ms, int limit) {
  Evicted evicted;
  TRY(const Totals before, totals());
  const PgValues until = PgValues().add(hour(before_ms));
  while (evicted.bytes < bytes && evicted.entries < limit) {
    std::vector<Digest> blobs;
    TRY(const PgRows program,
        run("DELETE FROM programs WHERE key = (SELECT key FROM programs WHERE NOT pinned"
            " AND used_hour < $1 ORDER BY used_hour, key LIMIT 1) RETURNING key, blobs",
            until));
    if (program.size() == 1) {
      TRY(const Digest key, program.digest(0, 0));
      evicted.programs.push_back(key);
      blobs = digests_in(program.bytes(0, 1));
      TRY(const PgRows kernels,
          run("DELETE FROM kernels k WHERE blob = ANY($2) AND used_hour < $1"
              " AND NOT EXISTS (SELECT FROM program_blobs p WHERE p.digest = k.blob)",
              PgValues().add(hour(before_ms)).add(blobs)));
      evicted.entries += 1 + static_cast<int>(kernels.changed());
    } else {
      TRY(const PgRows kernel,
          run("DELETE FROM kernels WHERE key = (SELECT key FROM kernels k WHERE used_hour < $1"
              " AND NOT EXISTS (SELECT FROM program_blobs p WHERE p.digest = k.blob)"
              " ORDER BY used_hour, key LIMIT 1) RETURNING blob",
              until));
      if (kernel.size() == 0) break;
      TRY(const Digest blob, kernel.digest(0, 0));
      blobs = {blob};
      ++evicted.entries;
    }
    TRY_STATUS(doom_unneeded(blobs, false, nullptr));
    TRY(const Totals now, totals());
    evicted.bytes = before.bytes - now.bytes;
  }
  return evicted;
}

}  // namespace kiln
