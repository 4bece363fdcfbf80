// StorageExecutor: carries out the core's look-ups and stores. Programs come from memory or from
// the cache's index; stores go to the cache's writer, whose answer returns to the loop as an event.
// When the disk takes no more, binaries that clients wait for are held in memory for a while. One
// thread, the loop's; everything it is given outlives it.
#pragma once

#include <functional>

#include "cache/kernel_cache.h"
#include "cache/pending_task_store.h"
#include "coordinator/core/events.h"
#include "coordinator/event_loop.h"
#include "coordinator/status/log_line.h"
#include "coordinator/storage/blob_memory_cache.h"
#include "coordinator/storage/kept_programs.h"
#include "coordinator/storage/manifest_table.h"
#include "coordinator/storage/needed_kernels.h"
#include "coordinator/storage/signer.h"

namespace kiln {

class StorageExecutor {
 public:
  StorageExecutor(KernelCache& cache, PendingTaskStore& tasks, Signer& signer,
                  ManifestTable& manifests, BlobMemoryCache& blob_memory, int64_t hold_blobs_ms,
                  const Digest& template_stamp, EventLoop& loop)
      : cache_(cache),
        tasks_(tasks),
        signer_(signer),
        manifests_(manifests),
        memory_(blob_memory),
        hold_blobs_ms_(hold_blobs_ms),
        template_stamp_(template_stamp),
        loop_(loop) {}

  // A stored program that other templates made is a miss that says so; it stays stored until its
  // successor is.
  void look_up(const Digest& program_key);
  void store(StoreRecords records);
  void store(StoreKernel kernel);
  void store(const StoreProgram& program);
  void store(StoreDetached task);
  void end(const EndDetached& task);
  void forget(const ForgetDetached& task);
  // Serves the program from memory until memory runs short, its binaries are dropped, or its time
  // is over (kept_programs.h). Then the core is asked for it again.
  void keep(KeepProgram program);
  // Its kernels count as used until the program is stored, however long that takes.
  void planned(const PlanFinished& plan) { needed_.planned(loop_.now_ms(), plan); }
  // Drops rows of flights.sqlite that could not be read; their programs are lost.
  void forget_damaged_tasks() { tasks_.remove_damaged(counting_failures()); }
  // Tells the core what earlier incarnations accepted and did not finish. On an error the service
  // must not start: it would break those promises.
  Status recover_tasks();
  // Forgets the programs and kernels that need this blob, so that they are tuned again.
  void blob_is_missing(const Digest& blob);

  // Failed writes, except those of kernels and programs, which the core counts.
  int64_t write_failures() const { return write_failures_; }
  int64_t read_failures() const {
    return read_failures_;
  }  // look-ups that the index did not answer
  int64_t detached_damaged() const { return detached_damaged_; }
  KernelCache::Totals totals() { return cache_.totals(); }
  // About once a second. Once a minute it tells the cache which programs memory served.
  void tick();
  // The cache evicted these, so memory drops them too.
  void evicted(const std::vector<Digest>& programs);

 private:
  PendingTaskStore::Done counting_failures();
  void write_uses();

  KernelCache& cache_;
  PendingTaskStore& tasks_;
  Signer& signer_;
  ManifestTable& manifests_;
  BlobMemoryCache& memory_;
  const int64_t hold_blobs_ms_;
  const Digest template_stamp_;  // of this build
  EventLoop& loop_;
  KeptPrograms kept_;
  NeededKernels needed_;
  int64_t write_failures_ = 0, read_failures_ = 0, detached_damaged_ = 0;
  int64_t write_uses_ms_ = 0;
};

}  // namespace kiln
