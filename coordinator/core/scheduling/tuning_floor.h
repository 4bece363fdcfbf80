// TuningFloor: kernel flights, the workers, and the leases between them. Told by RequestDesk which
// kernels are needed, it tells which are settled. One thread; owned by Core.
//
//   lease:  open (dispatch) -> every result in (take_result) -> closed
//                           -> lost: worker gone or silent, no progress, or reported once and not
//                              any more (take_back): its candidates are queued under a new epoch
//                           -> given elsewhere, without blame: its worker came into quarantine, or
//                              drains and never took it
//                           -> settled by its twin, when it was hedged
//
// Late results: a result whose lease is closed, or that comes twice, is acknowledged and changes
// nothing, even if the measurement in it is fine: it could only be told apart from a lie by taking
// it again. That goes for leases of an earlier life of the coordinator too: none is open in this
// one, and whether the earlier one had taken it back, or stored the result, nobody can say any
// more. What is lost so is bounded by the leases that were open when it died. A result accepted is
// not acknowledged before its record is durable; until then it is remembered here, so that its
// repetition is neither taken as stale nor acknowledged early.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <unordered_map>

#include "coordinator/core/fleet/compile_counts.h"
#include "coordinator/core/scheduling/dispatcher.h"
#include "coordinator/core/tuning/failure_memory.h"

namespace kiln {

class TuningFloor {
 public:
  explicit TuningFloor(const CoreOptions& options)
      : options_(options),
        leases_(options.first_lease),
        workers_(options),
        queue_(options.warm_up_turn),
        failures_(options) {}
  TuningFloor(const TuningFloor&) = delete;

  // ---- for RequestDesk ----
  void life_begins(int64_t now_ms) { fleet_due_ms_ = now_ms + options_.fleet_returns_ms; }
  Target resolve(const Target& target) const { return workers_.resolve(target); }
  // Some worker for `target` has reported in this life, or it is waited for however long.
  bool expects(const Target& target) const {
    return options_.max_waiting_for_worker_ms > 0 || workers_.saw(target);
  }
  // None has, but this life has only begun.
  bool may_yet_come(int64_t now_ms, const Target& target) const {
    return now_ms < fleet_due_ms_ && !target.isa.empty() && !expects(target);
  }
  // A new program for `target` may start: some worker could run it, or may yet come.
  Status check_target(const Target& target) const;
  std::string targets() const { return workers_.targets(); }      // that workers have, for people
  int64_t candidates_queued() const { return queue_.waiting(); }  // that wait for a worker
  // `program` waits for this kernel from now on, on behalf of `demand`; what its flight knows
  // already is kept.
  void need(int64_t now_ms, const Digest& program, PlannedKernel planned, const Demand& demand,
            const Target& target, Mode mode, Actions& out);
  // Others wait for it now.
  void set_demand(const Digest& program, const Digest& kernel, const Demand& demand);
  // It no longer does. A flight that nobody needs gives up its leases.
  void release(const Digest& program, const Digest& kernel);
  const KernelFlight* find(const Digest& kernel) const;
  // Kernels done or failed since the last call; release() each that a program waited for.
  std::vector<Digest> take_settled();
  // Between these two a planner may have read records that are older than what a flight knows, so
  // no flight is forgotten before.
  uint64_t plan_started();
  void plan_finished(uint64_t ticket);

  // ---- events ----
  void report(int64_t now_ms, const WorkerId& id, WorkerReport report, Actions& out);
  void worker_gone(int64_t now_ms, const WorkerId& id, Actions& out);
  void drain(const WorkerId& id);
  void kernel_stored(const Digest& kernel, const Status& status);
  void records_stored(const WorkerId& worker, const std::vector<ResultAck>& acks);
  void tick(int64_t now_ms, Actions& out);
  // At the end of every step: new leases, and orders to the workers something changed for.
  void dispatch(int64_t now_ms, Actions& out);

  void add_stats(int64_t now_ms, Stats& stats) const;

 private:
  using ResultId = std::pair<uint64_t, int>;  // lease, candidate
  void take_result(int64_t now_ms, const WorkerId& id, CandidateResult result, StoreRecords& store,
                   Actions& out);
  void keep_leases(int64_t now_ms, const WorkerId& id, const std::vector<LeaseState>& reported,
                   Actions& out);
  void drop_twin(KernelFlight& flight, int candidate, Job::Kind kind);
  void count_compiles(Worker& worker, int64_t compiles);
  void take_back(int64_t now_ms, uint64_t lease_id, bool blamed, Actions& out);
  void count_set_aside(const KernelFlight& flight, int before, const WorkerId& worker,
                       Actions& out);
  void empty_quarantine(int64_t now_ms, Actions& out);
  void close(uint64_t lease_id);
  void close_leases(const KernelFlight& flight);
  void queue(const KernelFlight& flight);
  void settle(int64_t now_ms, KernelFlight& flight, Actions& out);
  void fail_unserved(int64_t now_ms, Actions& out);
  void fail_if_unserved(int64_t now_ms, int64_t served_ms, KernelFlight& flight, Actions& out);
  void retire(KernelFlight& flight);
  void forget_retired();

  const CoreOptions& options_;
  Dispatcher::Flights flights_;
  LeaseTable leases_;
  WorkerRoster workers_;
  WorkQueue queue_;
  Pace pace_;
  Dispatcher dispatcher_{options_, flights_, leases_, workers_, queue_, pace_};
  FailureMemory failures_;
  CompileCounts compiles_;
  std::map<ResultId, Digest> storing_;               // accepted, record not durable yet
  std::map<WorkerId, std::vector<ResultAck>> acks_;  // to be sent with the next orders
  std::set<WorkerId> changed_;                       // orders are due
  bool dispatch_due_ = false;                        // work or a slot came free
  std::vector<Digest> settled_;
  int64_t fleet_due_ms_ = 0;  // by then the workers of an earlier life have reported
  uint64_t plans_ = 0;
  std::set<uint64_t> plans_out_;
  std::deque<std::pair<uint64_t, Digest>> retired_;  // needed by nobody since that many plans
  std::map<std::string, int64_t> served_ms_;         // of targets waited for: some worker was there
  int64_t compiled_ = 0, measured_ = 0, retries_ = 0, set_aside_ = 0, store_failures_ = 0;
};

}  // namespace kiln
