// KernelCache: the persistent store of a coordinator: programs, kernels (index rows in SQLite,
// blobs beside it) and tuning records. One writer thread with group commit; reads are answered on
// the caller's thread. Thread-safe. Layout of `directory`: index.sqlite, blobs/, lock.
//
// Invariants:
//  1. a row that names a blob is written only after the blob is durable;
//  2. what a put's completion reported as stored survives kill -9;
//  3. one process at a time: open() answers kUnavailable while another holds the directory.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/blob_store.h"
#include "compiler_core/plan/kin.h"
#include "compiler_core/program/program.h"
#include "compiler_core/tune/measurement.h"

namespace kiln {

// The stored winner of a kernel: everything but the bytes of the binary.
struct StoredKernel {
  ProgramKernel kernel;
  Target tuned_on;
};

class KernelCache {
 public:
  static Result<std::unique_ptr<KernelCache>> open(const Path& directory);
  ~KernelCache();
  // What open() had to set aside (a damaged index; the cache then starts empty); usually empty. For
  // the log.
  const std::string& warning() const;

  // Look-ups. kNotFound, also when a blob that the row needs is gone; kCorruption when a row does
  // not match its seal (it is dropped) or a blob its digest (it is set aside): once, then
  // kNotFound.
  Result<std::string> program(const Digest& program_key);  // the manifest
  Result<StoredKernel> kernel(const Digest& kernel_key);
  Result<std::string> blob(const Digest& digest);

  // Writes. `done` runs on the writer thread once the write is durable, or with the error (a full
  // disk is kUnavailable, a full queue kOverloaded). Order of calls is kept. `done` may call put_*
  // but not flush.
  using Done = std::function<void(Status)>;
  void put_blob(std::string bytes, Done done);
  void put_kernel(StoredKernel kernel, Done done);      // REQUIRES: its blob was put
  void put_program(const Program& program, Done done);  // REQUIRES: its blobs were put
  void put_record(TuningRecord record, Done done);      // the same one again is kept once
  // Says what a workload is kin to, so that its winners are found for others.
  void put_kin(const Digest& workload, Kin kin, Done done);
  // Drops a program or kernel row whose blob turned out bad, so that it is tuned again.
  void forget(const Digest& key, Done done);
  // Waits until everything put so far is durable.
  void flush();

  // Every record of a kernel key, oldest first. For resuming a flight after a restart, and for
  // tests.
  Result<std::vector<TuningRecord>> records(const Digest& kernel_key);
  // Schedules of earlier winners of this workload on any target or generator, newest first.
  Result<std::vector<Schedule>> earlier_winners(const Digest& workload);

  // Of winners of workloads that differ from this in sizes only, the nearest sizes first.
  Result<std::vector<Schedule>> kin_winners(const Kin& kin);

  struct Totals {
    int64_t programs = 0, kernels = 0, records = 0, bytes = 0, corrupt_blobs = 0;
  };
  Totals totals() const;

 private:
  struct Impl;
  explicit KernelCache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
