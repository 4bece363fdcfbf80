// KernelCache: the persistent store of a coordinator: programs, kernels (index rows in SQLite,
// blobs beside it) and tuning records. One writer thread with group commit; reads are answered on
// the caller's thread. Thread-safe. Layout of `directory`: index.sqlite, blobs/, lock.
//
// Its size has an optional bound. Above it, the least recently used programs are evicted, each with
// the kernels and blobs that no other program needs. Tuning records stay. Kernels and blobs of a
// stored program are never evicted before it, and a pinned program never is.
//
// Invariants:
//  1. a row that names a blob is written only after the blob is durable;
//  2. what a put's completion reported as stored survives kill -9;
//  3. one process at a time: open() answers kUnavailable while another holds the directory;
//  4. a blob's file is removed only after its row is durably gone;
//  5. the size stays within the bound: room is made before a write, and a write that finds none is
//     refused.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/blob_store.h"
#include "cache/listing.h"
#include "cache/taking_back.h"
#include "compiler_core/plan/shape_generic_key.h"
#include "compiler_core/program/audience.h"
#include "compiler_core/program/program.h"
#include "compiler_core/tune/measurement.h"

namespace kiln {

// The stored winner of a kernel, without the bytes of the binary.
struct StoredKernel {
  ProgramKernel kernel;
  Target tuned_on;
};

// A stored program, and who may have it.
struct StoredProgram {
  std::string manifest;
  Audience audience;
};

struct CacheOptions {
  int64_t max_bytes = 0;  // of programs, kernels and blobs; 0: unbounded
  // Entries used within this time are not evicted: a client may be about to need them.
  int64_t keep_used_ms = 10 * 60'000;
  int64_t index_memory_bytes = int64_t{64} << 20;  // index pages in the writer's memory
  int64_t touch_every_ms = 60'000;                 // how often access times are written
  int64_t orphans_after_ms = 3'600'000;            // age at which files without a row are removed
  bool sweeps = true;                              // look for such files
  // open() sets a damaged index aside and starts empty; else it answers kCorruption and touches
  // nothing.
  bool refuse_damaged = false;
  // collect() removes files that were set aside (damaged.h) at this age.
  int64_t keep_damaged_ms = int64_t{7} * 24 * 3'600'000;
  std::function<int64_t()> now_ms;       // wall clock; empty: the system's
  std::function<void(std::string)> log;  // lines for the operator; from any thread
  // Called with the programs evicted, on the writer's thread: memory must not serve them any more.
  std::function<void(std::vector<Digest>)> evicted;
};

class KernelCache {
 public:
  static Result<std::unique_ptr<KernelCache>> open(const Path& directory,
                                                   CacheOptions options = {});
  ~KernelCache();
  // For the log: the damaged index that open() set aside (the cache then starts empty). Usually
  // empty.
  const std::string& warning() const;

  // Look-ups. kNotFound, also when a blob that the row needs is gone; kCorruption when a row does
  // not match its seal (it is dropped) or a blob its digest (it is set aside): once, then
  // kNotFound.
  Result<std::string> program(const Digest& program_key);  // the manifest
  Result<StoredProgram> program_and_audience(const Digest& program_key);
  Result<StoredKernel> kernel(const Digest& kernel_key);
  Result<std::string> blob(const Digest& digest);
  // Counts a use of a program that was not looked up here; look-ups count by themselves.
  void touch(const Digest& program_key);
  // Counts a use of a kernel by a program that is not stored yet.
  void touch_kernel(const Digest& kernel_key);

  // Writes, done in the order of the calls. `done` runs on the writer thread once the write is
  // durable, or with the error: kUnavailable for a full disk and for a full cache that can evict
  // nothing, kOverloaded for a full queue. `done` may call put_* but not flush.
  using Done = std::function<void(Status)>;
  void put_blob(std::string bytes, Done done);
  void put_kernel(StoredKernel kernel, Done done);  // REQUIRES: its blob was put
  // REQUIRES: its blobs were put. The audience of a stored program under the same key is added to.
  void put_program(const Program& program, Done done, const Audience& audience = {});
  void put_record(TuningRecord record, Done done);  // an equal one is kept once
  // Records the key, so that the workload's winners are found for others of the same digest.
  void put_shape_generic_key(const Digest& workload, ShapeGenericKey key, Done done);
  // Drops a program or kernel row whose blob turned out bad, so that it is tuned again.
  void forget(const Digest& key, Done done);
  // Takes results back, durably and with their files, in one transaction; a look-up afterwards
  // finds nothing of them. `through`: of the revocations. What was put before this call goes too.
  using TookBack = std::function<void(Result<TakenBack>)>;  // on the writer's thread
  void take_back(TakeBack what, int64_t through, TookBack done);
  // Lists without removing (the blobs may be needed by others). Reads all programs.
  void would_take_back(TakeBack what, TookBack done);
  Result<std::vector<Revocation>> revocations();
  // A pinned program is never evicted, nor are its kernels. pin: kNotFound unless the program is
  // stored; unpin: kNotFound unless it is pinned.
  void pin(const Digest& program_key, Done done);
  void unpin(const Digest& program_key, Done done);
  // Evicts the least recently used entries until no more than `max_bytes` are stored, in small
  // steps between other writes; INT64_MAX evicts nothing. Files set aside long ago go too. `done`
  // hears how much went; kUnavailable, with a sentence, when the rest is pinned or in use.
  struct Collected {
    int64_t bytes = 0, programs = 0, entries = 0;
    int64_t left_bytes = 0;                        // stored now
    int64_t damaged_files = 0, damaged_bytes = 0;  // set aside long ago; not in `bytes`
  };
  void collect(int64_t max_bytes, std::function<void(Collected, Status)> done);
  // How many programs templates made that have another stamp; on the writer's thread.
  void count_programs_not_of(const Digest& stamp, std::function<void(Result<int64_t>)> done);
  // Waits until every write and use so far is durable.
  void flush();
  // Waits until the first sweep and the check of a large index are over. For tests.
  void wait_for_first_round();

  // The records of a kernel key, oldest first, for resuming a tuning after a restart.
  Result<std::vector<TuningRecord>> records(const Digest& kernel_key);
  // Schedules of earlier winners of this workload on any target, newest first.
  Result<std::vector<Schedule>> earlier_winners(const Digest& workload);

  // Winners of workloads that differ from this in sizes only, the nearest sizes first.
  Result<std::vector<Schedule>> nearest_winners(const ShapeGenericKey& key);

  // For people: these count as no use, and answer rows whose blobs are gone too. kNotFound,
  // kCorruption.
  Result<ProgramList> list_programs(const ProgramQuery& wanted);
  Result<ListedProgram> listed_program(const Digest& program_key);
  Result<StoredKernel> listed_kernel(const Digest& kernel_key);

  struct Totals {
    int64_t programs = 0, kernels = 0, records = 0, corrupt_blobs = 0;
    int64_t bytes = 0;         // in blobs
    int64_t stored_bytes = 0;  // in blobs and the rows that name them, as the bound counts
    int64_t max_bytes = 0;     // the bound; 0: none
    int64_t evicted = 0;       // programs since open()
  };
  static int64_t index_memory_bytes();  // memory of all indexes in this process
  Totals totals() const;                // costs one look-up at any size

 private:
  struct Impl;
  explicit KernelCache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
