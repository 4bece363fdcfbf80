// Dispatcher: which worker gets which candidates next. It leases candidates of the tuning tasks, in
// the queue's order (work_queue.h), to workers with a free slot, in batches of about lease_work_ms;
// what is built apart (TuningTask::waiting_for_build) it leases to whoever has a compiler free, one
// candidate at a time and kernel after kernel, until the devices have build_ahead_ms of work; and it
// hedges: what a straggler still holds of a kernel's last candidates also goes to a second worker.
//
// A GPU takes a whole workload, whose inputs and reference are then made once and whose candidates race
// against one incumbent. The first that gets something of it is its home and gets the rest; another
// one takes of it when it would have nothing to do. Of what is built apart a GPU that has nothing to do
// takes what there is, and one that has waits for the rest.
// Refers to TuningScheduler's parts; one thread.
#pragma once

#include <set>
#include <unordered_map>

#include "coordinator/core/fleet/worker_registry.h"
#include "coordinator/core/scheduling/latency_estimator.h"
#include "coordinator/core/scheduling/lease_table.h"
#include "coordinator/core/scheduling/work_queue.h"
#include "coordinator/core/tuning/tuning_task.h"

namespace kiln {

class Dispatcher {
 public:
  using Tasks = std::unordered_map<Digest, TuningTask>;
  Dispatcher(const CoreOptions& options, Tasks& tasks, LeaseTable& leases, WorkerRegistry& workers,
             WorkQueue& queue, WorkQueue& builds, const LatencyEstimator& latency,
             const LatencyEstimator& device_times)
      : options_(options),
        tasks_(tasks),
        leases_(leases),
        workers_(workers),
        queue_(queue),
        builds_(builds),
        latency_(latency),
        device_times_(device_times) {}

  // Leases work until no worker has a free slot, or nothing is left for those that have one. Adds
  // to `changed` the workers that got something.
  void lease_work(int64_t now_ms, std::set<WorkerId>& changed);
  // The same of what is to be built, for workers that have room for it.
  void lease_builds(int64_t now_ms, std::set<WorkerId>& changed);
  // Whether some worker has room, and no work waits that it could do.
  bool has_idle_workers() const;
  // Whether one of those could have the task's variants, which wait for others to be tried.
  bool may_queue_variants(const TuningTask& task) const;
  // Leases the last candidates of a kernel that are later than hedge_after times the median to a
  // second worker that has a free slot, each lease once. Not finals: they are one measurement.
  void hedge_late(int64_t now_ms, std::set<WorkerId>& changed);
  // The leases that the worker should hold, and the jobs that it does not know of yet.
  WorkerOrders orders_for(const WorkerId& id);
  // Whether devices may have what is to be built too, when they have nothing else: a CPU's workers,
  // whose compilers would disturb them while they time something.
  static bool devices_build(const TuningTask& task) {
    return task.target().backend == Backend::kCpu && !task.waits_for_build() &&
           task.waiting_for_build() > 0;
  }
  // Says to the queues that the task is in how many of its candidates wait there.
  void set_waiting(const TuningTask& task);

  // Whether `worker` may be asked about a candidate: its word counts, and it can run it.
  bool may_vote(const WorkerId& id, const Worker& worker, const TuningTask& task, int candidate,
                Among among) const;

  // To the schedule of a candidate that calls a library, the version that `worker` has.
  static void add_version(Schedule& schedule, const TuningTask& task, const Worker& worker);

  int64_t hedged() const { return hedged_; }

 private:
  using Idle = std::set<std::pair<int, WorkerId>>;  // least busy first
  // Leases something of a task to a worker: the work leased, in milliseconds of one worker.
  using LeaseTo = double (Dispatcher::*)(int64_t now_ms, const WorkerId& id, TuningTask& task);
  void lease_to_class(int64_t now_ms, const Target& server, const Idle& idle, WorkQueue& queue,
                      LeaseTo lease, std::set<WorkerId>& changed);
  bool lease_next(int64_t now_ms, const WorkerId& id, const Target& server, WorkQueue& queue,
                  LeaseTo lease);
  bool is_idle(const WorkerClass& workers) const {
    return !workers.idle.empty() && !queue_.has_work_for(workers.target);
  }
  bool is_idle(const BuilderClass& builders) const {
    return !builders.idle.empty() && !builds_.has_work_for(builders.target);
  }
  static std::vector<std::string> lacking(const Worker& worker, const TuningTask& task);
  static std::vector<std::string> left_out(const Worker& worker, const TuningTask& task);
  bool has_stand_in(const WorkerId& id, const TuningTask& task) const;
  bool may_race(const WorkerId& id, const TuningTask& task) const;
  double lease_to(int64_t now_ms, const WorkerId& id, TuningTask& task);
  double lease_build_to(int64_t now_ms, const WorkerId& id, TuningTask& task);
  bool is_supplied(const TuningTask& task) const;
  bool is_gathering(const TuningTask& task, int most) const;
  bool is_for_later(const Worker& worker, const TuningTask& task) const;
  bool is_anothers(const WorkerId& id, const Worker& worker, const TuningTask& task) const;
  double device_ms(const TuningTask& task) const;
  double open_batch(int64_t now_ms, const WorkerId& id, TuningTask& task, TuningTask::Batch batch);
  int largest_batch(const TuningTask& task) const;
  int batch_limit(const TuningTask& task) const;
  int shares(const TuningTask& task) const;
  bool is_late(int64_t now_ms, const Lease& lease) const;
  const WorkerId* second_worker(const TuningTask& task, const Lease& slow) const;
  void open(int64_t now_ms, const TuningTask& task, Lease lease);

  const CoreOptions& options_;
  Tasks& tasks_;
  LeaseTable& leases_;
  WorkerRegistry& workers_;
  WorkQueue& queue_;                      // tasks that need a worker's device
  WorkQueue& builds_;                     // tasks whose candidate is to be built
  const LatencyEstimator& latency_;       // from one result to the next
  const LatencyEstimator& device_times_;  // verifying and timing alone
  bool is_sharing_ = false;  // devices that would have nothing take of what is another's
  int64_t hedged_ = 0;
};

}  // namespace kiln
