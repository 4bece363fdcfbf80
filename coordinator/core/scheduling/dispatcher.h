// Dispatcher: who works on what next: leases candidates of the flights in turn (work_queue.h) to
// workers with a free slot, in batches that take about lease_work_ms, and gives what a straggler
// still has of a kernel's last candidates to a second worker. Refers to TuningFloor's parts; one
// thread.
#pragma once

#include <set>
#include <unordered_map>

#include "coordinator/core/fleet/worker_roster.h"
#include "coordinator/core/scheduling/lease_table.h"
#include "coordinator/core/scheduling/pace.h"
#include "coordinator/core/scheduling/work_queue.h"
#include "coordinator/core/tuning/kernel_flight.h"

namespace kiln {

class Dispatcher {
 public:
  using Flights = std::unordered_map<Digest, KernelFlight>;
  Dispatcher(const CoreOptions& options, Flights& flights, LeaseTable& leases,
             WorkerRoster& workers, WorkQueue& queue, const Pace& pace)
      : options_(options),
        flights_(flights),
        leases_(leases),
        workers_(workers),
        queue_(queue),
        pace_(pace) {}

  // Until nobody has a free slot or nothing is left for those who have. Adds to `changed` who got
  // something.
  void lease_work(int64_t now_ms, std::set<WorkerId>& changed);
  // The last candidates of a kernel that are later than hedge_after times the median says, each
  // lease once, while a second worker has a free slot. Not finals: they are one measurement.
  void hedge_late(int64_t now_ms, std::set<WorkerId>& changed);
  // What the worker should hold, and the jobs that it does not know of yet.
  WorkerOrders orders_for(const WorkerId& id);

  int64_t hedged() const { return hedged_; }

 private:
  void lease_to_class(int64_t now_ms, const WorkerClass& workers, std::set<WorkerId>& changed);
  bool lease_next(int64_t now_ms, const WorkerId& id, const Target& device);
  double lease_to(int64_t now_ms, const WorkerId& id, KernelFlight& flight);
  int batch_limit(const KernelFlight& flight) const;
  bool is_late(int64_t now_ms, const Lease& lease) const;
  const WorkerId* second_worker(const Target& target, const WorkerId& first) const;
  void open(int64_t now_ms, const KernelFlight& flight, Lease lease);

  const CoreOptions& options_;
  Flights& flights_;
  LeaseTable& leases_;
  WorkerRoster& workers_;
  WorkQueue& queue_;
  const Pace& pace_;
  int64_t hedged_ = 0;
};

}  // namespace kiln
