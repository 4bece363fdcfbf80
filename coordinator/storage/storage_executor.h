// StorageExecutor: carries out the core's look-ups and stores. Programs come from the store, whose
// answers, now or later, and to what is to be stored too, return to the loop as events.
// When the disk takes no more, binaries that clients wait for are held in memory for a while. One
// thread, the loop's; everything it is given outlives it.
#pragma once

#include <functional>

#include "cache/pending_task_store.h"
#include "cache/store.h"
#include "compiler_core/kernels/registry.h"
#include "coordinator/core/events.h"
#include "coordinator/event_loop.h"
#include "coordinator/status/log_line.h"
#include "coordinator/storage/blob_memory_cache.h"
#include "coordinator/storage/kept_programs.h"
#include "coordinator/storage/manifest_table.h"
#include "coordinator/storage/needed_kernels.h"
#include "coordinator/storage/offers.h"
#include "coordinator/storage/outage.h"
#include "coordinator/storage/revocation_list.h"
#include "coordinator/storage/signer.h"
#include "coordinator/storage/vouching.h"

namespace kiln {

class StorageExecutor {
 public:
  StorageExecutor(Store& store, PendingTaskStore& tasks, Signer& signer, ManifestTable& manifests,
                  BlobMemoryCache& blob_memory, int64_t hold_blobs_ms, const Digest& template_stamp,
                  const CoreOptions& core, EventLoop& loop, Vouching vouching = {},
                  const Offers* offers = nullptr)
      : store_(store),
        tasks_(tasks),
        signer_(signer),
        manifests_(manifests),
        memory_(blob_memory),
        hold_blobs_ms_(hold_blobs_ms),
        template_stamp_(template_stamp),
        sound_versions_(sound_versions()),
        vouching_(std::move(vouching)),
        offers_(offers),
        serial_(static_cast<int64_t>(core.first_lease)),
        loop_(loop) {}

  // A stored program that other templates made says so; it stays stored until its successor is. Its
  // manifest comes along unless a template says that its older versions were wrong. `answered` is
  // called when the core has heard. While the store has been away for moments only it is asked again.
  void look_up(const LookUpProgram& action, std::function<void()> answered);
  void store(StoreRecords records);
  void store(StoreKernel kernel);
  void store(const StoreProgram& program);
  void store(StoreDetached task);
  void end(const EndDetached& task);
  void forget(const ForgetDetached& task);
  void store(const StoreLost& lost);
  // Serves the program from memory until memory runs short, its binaries are dropped, or its time
  // is over (kept_programs.h). Then the core is asked for it again.
  void keep(KeepProgram program);
  // A kernel is offered: programs in memory may be stale from now on.
  void offered() { manifests_.clear(); }
  // Gives the program a serial and a time. Its kernels count as used until it is stored, however
  // long that takes.
  void planned(PlanFinished& plan);
  // Takes results back (cache/taking_back.h): from the core, the store, and memory. `done` runs on
  // the loop's thread. The act is noted with it.
  using TookBack = std::function<void(const Result<TakenBack>&)>;
  void take_back(const TakeBack& what, const TookBack& done, const Store::Noted& act = {});
  // A binary that clients ask for next, and the disk does not have: held in memory for a while.
  void share(ShareBinary binary);
  // Revokes the programs that were made with this kernel so far, and forgets those of them that are
  // stored; KernelWithdrawn follows, with a serial that is not revoked.
  void withdraw(const WithdrawKernel& kernel);
  // The list for clients, read at the start and after each change; its serial is 0 while it is
  // empty.
  Status read_revocations();
  const RevocationList& revoked() const { return revoked_; }
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
  }  // look-ups that the store did not answer
  int64_t detached_damaged() const { return detached_damaged_; }
  // Stored programs that other templates made, as last counted.
  int64_t programs_stale() const { return programs_stale_; }
  Store::Totals totals() const { return store_.totals(); }
  // About once a second. Once a minute it tells the store which programs memory served; every few
  // seconds it counts those that other templates made, while there are any.
  void tick();
  // The store evicted these, so memory drops them too.
  void evicted(const std::vector<Digest>& programs);

 private:
  ProgramLookedUp looked_up(const LookUpProgram& action, Result<StoredProgram> stored);
  PendingTaskStore::Done counting_failures();
  void write_uses();
  void count_stale();
  void begin_taking_back(const TakeBack& what, const TakenBack& found, TookBack done,
                         const Store::Noted& act);
  void remove(const TakeBack& what, TookBack done, const Store::Noted& act = {});
  void drop_from_memory(const TakenBack& taken);
  bool is_sound(const Program& program) const;

  Store& store_;
  PendingTaskStore& tasks_;
  Signer& signer_;
  ManifestTable& manifests_;
  BlobMemoryCache& memory_;
  const int64_t hold_blobs_ms_;
  const Digest template_stamp_;  // of this build
  const TemplateVersions sound_versions_;
  const Vouching vouching_;     // a program that it does not suffice for is a miss
  const Offers* const offers_;  // null: none
  int64_t serial_;              // of the last program planned, or take-back
  int64_t times_taken_back_ = 0;
  struct LookUp {
    LookUpProgram action;
    std::function<void()> answered;
  };
  std::vector<LookUp> asked_again_;  // at the next tick
  Outage outage_;
  RevocationList revoked_;
  EventLoop& loop_;
  KeptPrograms kept_;
  bool store_was_away_ = false;  // at the last tick
  NeededKernels needed_;
  int64_t write_failures_ = 0, read_failures_ = 0, detached_damaged_ = 0;
  int64_t write_uses_ms_ = 0;
  int64_t count_stale_ms_ = 0;
  int64_t programs_stale_ = 0;
  bool counted_stale_ = false, counting_stale_ = false;
};

}  // namespace kiln
