// Store: what a coordinator keeps for good: programs, kernels with their binaries (blobs), tuning
// records, winners, pins and revocations. KernelCache (SQLite and a folder) is one implementation,
// PostgresStore (PostgreSQL and an object store) another; tests/cache/store_contract_test.cc holds
// both to what stands here. Thread-safe.
//
// Errors, of every call: kNotFound is a fact, that there is no such thing; kUnavailable is none: the
// store cannot say now, and the caller may neither forget nor make again because of it.
//
// Promises:
//  1. a row that names a blob is written only after the blob is durable;
//  2. what a put's completion reported as stored survives kill -9;
//  3. one process at a time writes;
//  4. a blob's bytes are removed only after its row is durably gone;
//  5. writes are done, and answered, in the order of the calls.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cache/admin_act.h"
#include "cache/listing.h"
#include "cache/taking_back.h"
#include "cache/tune_log.h"
#include "compiler_core/plan/shape_generic_key.h"
#include "compiler_core/program/audience.h"
#include "compiler_core/program/program.h"
#include "compiler_core/tune/measurement.h"

namespace kiln {

// The stored winner of a kernel, without the bytes of the binary.
struct StoredKernel {
  ProgramKernel kernel;
  Target tuned_on;
  // print() of the workload's graph, from which the kernel's source is printed again; empty: an older
  // Kiln stored it, or it is larger than kMaxWorkloadBytes.
  std::string workload_text{};
};
inline constexpr size_t kMaxWorkloadBytes = 256 << 10;

// A stored program, and who may have it.
struct StoredProgram {
  std::string manifest;
  Audience audience;
  bool is_only_here = false;  // on this machine's disk, until the store is back (Store::Totals)
};

// ReadableStore: the part of a store that a coordinator that follows needs.
class ReadableStore {
 public:
  // Called once, on any thread, maybe before the call that was given it returns. It must not wait
  // for the store.
  template <class T>
  using Then = std::function<void(Result<T>)>;

  virtual ~ReadableStore() = default;

  // Look-ups, which never make the caller wait longer than a file on a local disk does. kNotFound,
  // of a program also when a blob that it needs is gone; kCorruption when a row does not match its
  // seal (it is dropped) or a blob its digest (it is set aside): once, then kNotFound; kUnavailable.
  virtual void look_up_program(const Digest& program_key, Then<StoredProgram> then) = 0;
  virtual void look_up_blob(const Digest& digest, Then<std::string> then) = 0;

  // Where anybody may GET the blob for kLinkLife. kUnsupported where its bytes are in no such place.
  virtual void look_up_link(const Digest& digest, Then<std::string> then);
  static constexpr std::chrono::minutes kLinkLife{15};  // objects of no use stay for an hour

  // Waits for the answer, as planner threads may, and a loop must not.
  virtual Result<std::vector<Revocation>> revocations() = 0;  // oldest first
  // The part of the store that does not answer at the moment, for people; empty: all does. Never waits.
  virtual std::string away() const { return {}; }
};

class Store : public ReadableStore {
 public:
  using Done = std::function<void(Status)>;

  // For the log: what was amiss when it was opened. Usually empty.
  virtual const std::string& warning() const = 0;

  // Look-ups that wait for the answer: for planner threads, never for a loop. Errors as above.
  virtual Result<StoredKernel> kernel(const Digest& kernel_key) = 0;
  // The records of a kernel key, oldest first, for resuming a tuning after a restart.
  virtual Result<std::vector<TuningRecord>> records(const Digest& kernel_key) = 0;
  // Schedules of earlier winners of this workload on any target, newest first.
  virtual Result<std::vector<Schedule>> earlier_winners(const Digest& workload) = 0;
  // Winners of workloads that differ from this in sizes only, the nearest sizes first.
  virtual Result<std::vector<Schedule>> nearest_winners(const ShapeGenericKey& key) = 0;

  // Counts a use of a program that was not looked up here; look-ups count by themselves.
  virtual void touch(const Digest& program_key) = 0;
  // Counts a use of a kernel by a program that is not stored yet.
  virtual void touch_kernel(const Digest& kernel_key) = 0;

  // Writes, done in the order of the calls. `done` runs on the writer's thread once the write is
  // durable, or with the error: kUnavailable when it could not be made durable, also for a full
  // store that can evict nothing; kOverloaded for a full queue. `done` may call put_* but not flush.
  // A store that several machines share may keep what it is given while it is away on this machine's
  // disk: blobs and kernels are then durable; a program is kUnavailable, and found.
  virtual void put_blob(std::string bytes, Done done) = 0;
  virtual void put_kernel(StoredKernel kernel, Done done) = 0;  // REQUIRES: its blob was put
  // REQUIRES: its blobs were put. The audience of a stored program under the same key is added to.
  virtual void put_program(const Program& program, Done done, const Audience& audience = {}) = 0;
  virtual void put_record(TuningRecord record, Done done) = 0;  // an equal one is kept once
  // Records the key, so that the workload's winners are found for others of the same digest.
  virtual void put_shape_generic_key(const Digest& workload, ShapeGenericKey key, Done done) = 0;
  // Drops a program or kernel row whose blob turned out bad, so that it is tuned again.
  virtual void forget(const Digest& key, Done done) = 0;
  // An act that a write is given is noted with it, in one transaction, or not at all.
  using Noted = std::optional<AdminAct>;
  // Takes results back, durably and with their files, in one transaction; a look-up afterwards
  // finds nothing of them. `through`: of the revocations. What was put before this call goes too.
  // The act's outcome is the store's to fill in.
  using TookBack = Then<TakenBack>;  // on the writer's thread
  virtual void take_back(TakeBack what, int64_t through, TookBack done, const Noted& act = {}) = 0;
  // Lists without removing (the blobs may be needed by others). Reads all programs.
  virtual void would_take_back(TakeBack what, TookBack done) = 0;
  // A pinned program is never evicted, nor are its kernels. pin: kNotFound unless the program is
  // stored; unpin: kNotFound unless it is pinned.
  virtual void pin(const Digest& program_key, Done done, const Noted& act = {}) = 0;
  virtual void unpin(const Digest& program_key, Done done, const Noted& act = {}) = 0;
  // Notes an act that is no write, or one that failed.
  virtual void note(AdminAct act, Done done) = 0;
  // Evicts the least recently used entries until no more than `max_bytes` are stored, in small
  // steps between other writes; INT64_MAX evicts nothing. Files set aside long ago go too. `done`
  // hears how much went; kUnavailable, with a sentence, when the rest is pinned or in use.
  struct Collected {
    int64_t bytes = 0, programs = 0, entries = 0;
    int64_t left_bytes = 0;                        // stored now
    int64_t damaged_files = 0, damaged_bytes = 0;  // set aside long ago; not in `bytes`
  };
  virtual void collect(int64_t max_bytes, std::function<void(Collected, Status)> done) = 0;
  // How many programs templates made that have another stamp; on the writer's thread.
  virtual void count_programs_not_of(const Digest& stamp, Then<int64_t> done) = 0;
  // One page of the tuning log; on the writer's thread. kNotFound: no such program.
  virtual void list_records(RecordQuery wanted, Then<RecordList> then) = 0;
  // The acts before that number, the latest first, so many at most.
  virtual void list_acts(int64_t before, int64_t limit, Then<std::vector<AdminAct>> then) = 0;
  // Waits until every write and use so far is answered.
  virtual void flush() = 0;

  // For people, and their threads: these count as no use, and answer rows whose blobs are gone too.
  // kNotFound, kCorruption, kUnavailable.
  virtual Result<ProgramList> list_programs(const ProgramQuery& wanted) = 0;
  virtual Result<ListedProgram> listed_program(const Digest& program_key) = 0;
  virtual Result<StoredKernel> listed_kernel(const Digest& kernel_key) = 0;
  // Which of these are stored, and match their seals: as many calls of listed_program() or
  // listed_kernel(), at once. kUnavailable.
  virtual Result<std::set<Digest>> whole_programs(const std::vector<Digest>& keys);
  virtual Result<std::set<Digest>> whole_kernels(const std::vector<Digest>& keys);

  struct Totals {
    int64_t programs = 0, kernels = 0, records = 0, corrupt_blobs = 0;
    int64_t bytes = 0;         // in blobs
    int64_t stored_bytes = 0;  // in blobs and the rows that name them, as the bound counts
    int64_t max_bytes = 0;     // the bound; 0: none
    int64_t evicted = 0;       // programs since it was opened
    // Programs and kernels on this machine's disk that wait for the store, which was away when they
    // were put; bytes with their binaries.
    int64_t spooled = 0, spooled_bytes = 0;
  };
  virtual Totals totals() const = 0;  // some seconds old at most; never waits for a network
};

}  // namespace kiln
