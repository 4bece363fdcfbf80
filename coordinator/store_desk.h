// StoreDesk: carries out what the core wants looked up and stored. Programs come from memory or
// from the cache's index; stores go to the cache's writer, whose word comes back to the loop as an
// event. When the disk takes no more, the binaries that clients wait for are held in memory for a
// while. One thread, the loop's; everything it is given outlives it.
#pragma once

#include <functional>

#include "cache/kernel_cache.h"
#include "cache/pending_task_store.h"
#include "coordinator/blob_shelf.h"
#include "coordinator/core/events.h"
#include "coordinator/inbox.h"
#include "coordinator/kept_programs.h"
#include "coordinator/log_line.h"
#include "coordinator/manifest_table.h"
#include "coordinator/needed_kernels.h"
#include "coordinator/signer.h"

namespace kiln {

class StoreDesk {
 public:
  struct Loop {
    Inbox& inbox;
    std::function<void(Event)> step;
    std::function<int64_t()> now_ms;
    std::function<void(const LogLine&)> log;
  };
  StoreDesk(KernelCache& cache, PendingTaskStore& flights, Signer& signer, ManifestTable& manifests,
            BlobShelf& shelf, int64_t hold_blobs_ms, Loop loop)
      : cache_(cache),
        flights_(flights),
        signer_(signer),
        manifests_(manifests),
        shelf_(shelf),
        hold_blobs_ms_(hold_blobs_ms),
        loop_(std::move(loop)) {}

  void look_up(const Digest& program_key);
  void store(StoreRecords records);
  void store(StoreKernel kernel);
  void store(const StoreProgram& program);
  void store(StoreFlight flight);
  void end(const EndFlight& flight);
  void forget(const ForgetFlight& flight);
  // Until memory is needed for others, the binaries that only memory has are given up, or its time
  // is over (kept_programs.h): then it is asked of the core again.
  void keep(KeepProgram program);
  // Its kernels are in use until the program is stored, however long that takes.
  void planned(const PlanFinished& plan) { needed_.planned(loop_.now_ms(), plan); }
  // Rows of flights.sqlite that could not be read: what they were is lost.
  void forget_damaged_flights() { flights_.remove_damaged(counting_failures()); }
  // Tells the core what was accepted in earlier lives and is not done. On an error the service must
  // not start: it would forget for a life what it promised.
  Status recover_flights();
  // What needs this blob has to be tuned again.
  void blob_is_missing(const Digest& blob);

  // What the disk did not take, but for kernels and programs, which the core counts.
  int64_t write_failures() const { return write_failures_; }
  int64_t read_failures() const { return read_failures_; }  // look-ups the index did not answer
  int64_t flights_damaged() const { return flights_damaged_; }
  KernelCache::Totals totals() { return cache_.totals(); }
  // About once a second. Once a minute it tells the cache what was answered from memory.
  void tick();
  // The cache gave these up: memory forgets them too.
  void evicted(const std::vector<Digest>& programs);

 private:
  PendingTaskStore::Done counting_failures();
  void write_uses();

  KernelCache& cache_;
  PendingTaskStore& flights_;
  Signer& signer_;
  ManifestTable& manifests_;
  BlobShelf& shelf_;
  const int64_t hold_blobs_ms_;
  const Loop loop_;
  KeptPrograms kept_;
  NeededKernels needed_;
  int64_t write_failures_ = 0, read_failures_ = 0, flights_damaged_ = 0;
  int64_t write_uses_ms_ = 0;
};

}  // namespace kiln
