#include "coordinator/store_desk.h"

#include <chrono>
#include <memory>

namespace kiln {
namespace {

constexpr int64_t kWriteUsesMs = 60'000;

}  // namespace
namespace {

LogLine not_stored(std::string_view what, const Digest& key, const Error& error) {
  LogLine line(what, LogLine::Level::kWarning);
  line.add("key", key.short_hex()).add("state", "not_stored").add("reason", error.message);
  return line;
}

}  // namespace

void StoreDesk::look_up(const Digest& program_key) {
  ProgramLookedUp found{program_key, {}};
  if (auto manifest = cache_.program(program_key)) {
    // Read once, so that memory serves nothing that a client could not read.
    if (const auto program = program_from_json(*manifest)) {
      found.program_json = *manifest;
      const std::string signature = signer_.signature_of(*manifest);
      manifests_.insert(*program, {*std::move(manifest), signature});
    } else {
      loop_.log(LogLine("program", LogLine::Level::kWarning)
                    .add("key", program_key.short_hex())
                    .add("state", "corrupt")
                    .add("reason", program.error().message));
      cache_.forget(program_key, nullptr);
    }
  }
  loop_.step(std::move(found));
}

// The acknowledgement follows the last record: puts are done in order.
void StoreDesk::store(StoreRecords action) {
  RecordsStored stored{std::move(action.worker), std::move(action.acks)};
  if (action.records.empty()) return loop_.step(std::move(stored));
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  for (TuningRecord& record : action.records)
    record.taken_at_ms = std::chrono::duration_cast<std::chrono::milliseconds>(wall).count();
  TuningRecord last = std::move(action.records.back());
  action.records.pop_back();
  for (TuningRecord& record : action.records) {
    cache_.put_record(std::move(record), [this](const Status& status) {
      if (!status) loop_.inbox.post([this] { ++record_failures_; });
    });
  }
  cache_.put_record(std::move(last), [this, stored = std::move(stored)](const Status& status) {
    loop_.inbox.post([this, stored, failed = !status] {
      record_failures_ += failed ? 1 : 0;
      loop_.step(stored);
    });
  });
}

// The blob stays in memory whatever the disk says: the clients that wait ask for it next.
void StoreDesk::store(StoreKernel action) {
  const Digest key = action.kernel.key, blob = action.kernel.blob;
  shelf_.put(blob, action.binary);
  const auto put_blob = std::make_shared<Status>();
  cache_.put_blob(std::move(action.binary),
                  [put_blob](Status status) { *put_blob = std::move(status); });
  const auto done = [this, key, blob](const Status& status) {
    if (!status) {
      shelf_.hold(blob, loop_.now_ms() + hold_blobs_ms_);
      loop_.log(not_stored("kernel", key, status.error()));
    }
    loop_.step(KernelStored{key, status});
  };
  cache_.put_kernel({std::move(action.kernel), std::move(action.tuned_on)},
                    [this, put_blob, done](const Status& put_kernel) {
                      const Status& cause = *put_blob ? put_kernel : *put_blob;
                      loop_.inbox.post([done, cause] { done(cause); });
                    });
}

void StoreDesk::store(const StoreProgram& action) {
  const Digest key = action.program.key;
  cache_.put_program(action.program, [this, key](const Status& status) {
    loop_.inbox.post([this, key, status] {
      if (!status) {
        loop_.log(not_stored("program", key, status.error()));
      }
      loop_.step(ProgramStored{key, status});
    });
  });
}

void StoreDesk::store(StoreFlight action) {
  const DetachedFlight& flight = action.flight;
  flights_.put({flight.graph, flight.target, flight.mode}, std::move(action.graph_text),
               [this, stored = FlightStored{action.key, flight, {}}](Status status) mutable {
                 stored.status = std::move(status);
                 loop_.inbox.post([this, stored] { loop_.step(stored); });
               });
}

// What cannot be written now is done again in the next life: found in the cache, or failing again.
void StoreDesk::end(const EndFlight& action) {
  const DetachedFlight& flight = action.flight;
  const StoredFlight stored{flight.graph, flight.target, flight.mode};
  if (action.outcome)
    flights_.remove(stored, nullptr);
  else
    flights_.fail_for_good(stored, action.outcome.error(), nullptr);
}

void StoreDesk::forget(const ForgetFlight& action) {
  const DetachedFlight& flight = action.flight;
  flights_.remove({flight.graph, flight.target, flight.mode}, nullptr);
}

void StoreDesk::keep(KeepProgram action) {
  const auto program = program_from_json(action.program_json);
  if (!program) return;
  const std::string signature = signer_.signature_of(action.program_json);
  manifests_.insert(*program, {std::move(action.program_json), signature, true});
}

Status StoreDesk::recover_flights() {
  TRY(const std::vector<StoredFlight> flights, flights_.all());
  for (const StoredFlight& flight : flights)
    loop_.step(FlightRecovered{{flight.graph, flight.target, flight.mode}, flight.failure});
  return {};
}

void StoreDesk::write_uses() {
  if (loop_.now_ms() < write_uses_ms_) return;
  write_uses_ms_ = loop_.now_ms() + kWriteUsesMs;
  for (const Digest& program : manifests_.take_used()) cache_.touch(program);
}

void StoreDesk::evicted(const std::vector<Digest>& programs) {
  for (const Digest& program : programs) manifests_.remove(program);
}

// Memory must not answer for these programs any more; the cache itself answers a miss for what
// lacks a blob.
void StoreDesk::blob_is_missing(const Digest& blob) {
  const ManifestTable::Users users = manifests_.take_users_of(blob);
  for (const Digest& program : users.programs) {
    loop_.log(LogLine("blob", LogLine::Level::kWarning)
                  .add("digest", blob.short_hex())
                  .add("state", "missing")
                  .add("program", program.short_hex()));
    cache_.forget(program, nullptr);
  }
  for (const Digest& kernel : users.kernels) cache_.forget(kernel, nullptr);
}

}  // namespace kiln
