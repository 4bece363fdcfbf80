// TuningScheduler: the tuning tasks, the workers, and the leases between them. CompileRequests says
// which kernels are needed and learns which are settled. One thread; owned by Core.
//
//   lease:  open (dispatch) -> every result in (take_result) -> closed
//                           -> lost (take_back): its worker is gone or silent, made no progress, or
//                              reported the lease once and no longer does; its candidates are
//                              queued under a new epoch
//                           -> moved, without blame: its worker came into quarantine, or drains and
//                              never took it
//                           -> settled by its hedged duplicate (drop_duplicate)
//
// A late result (its lease is closed, or it comes twice) is acknowledged and changes nothing, even
// if its measurement is good: only measuring again could distinguish it from a lie. The same holds
// for leases of an earlier incarnation of the coordinator: none is open in this one, and nobody can
// say whether the earlier one had taken the lease back or stored the result. The loss is bounded by
// the leases that were open when it died. An accepted result is acknowledged only once its record
// is durable; until then it is remembered here, so that its repetition is neither taken as stale
// nor acknowledged early.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <unordered_map>

#include "coordinator/core/fleet/compile_counts.h"
#include "coordinator/core/scheduling/dispatcher.h"
#include "coordinator/core/tuning/failures.h"
#include "coordinator/core/tuning/votes.h"

namespace kiln {

class TuningScheduler final : public Jury {
 public:
  explicit TuningScheduler(const CoreOptions& options)
      : options_(options),
        leases_(options.first_lease),
        workers_(options),
        queue_(options.warm_up_turn),
        builds_(options.warm_up_turn, WorkQueue::Servers::kBuilders),
        failures_(options) {}
  TuningScheduler(const TuningScheduler&) = delete;

  // ---- for CompileRequests ----
  void incarnation_begins(int64_t now_ms) { fleet_due_ms_ = now_ms + options_.fleet_returns_ms; }
  Target resolve(const Target& target) const { return workers_.resolve(target); }
  // Whether a worker for `target` has reported in this incarnation, or may be waited for.
  bool expects(const Target& target) const {
    return options_.max_waiting_for_worker_ms > 0 || workers_.saw(target);
  }
  // Whether none has reported only because this incarnation is young.
  bool may_yet_come(int64_t now_ms, const Target& target) const {
    return now_ms < fleet_due_ms_ && !target.isa.empty() && !expects(target);
  }
  // Ok if a new program for `target` may start: some worker can run it, or may yet come.
  Status check_target(const Target& target) const;
  std::string targets() const { return workers_.targets(); }  // those of the workers, for people
  int64_t candidates_queued() const { return queue_.waiting() + builds_.waiting(); }
  // From now on `program` waits for this kernel, on behalf of `tenants`. An existing task keeps
  // what it knows.
  void need(int64_t now_ms, const Digest& program, PlannedKernel planned, const Tenants& tenants,
            const Target& target, Mode mode, Actions& out);
  // Changes on whose behalf `program` waits.
  void set_tenants(const Digest& program, const Digest& kernel, const Tenants& tenants);
  // `program` no longer waits. A task that nobody needs gives up its leases.
  void release(const Digest& program, const Digest& kernel);
  const TuningTask* find(const Digest& kernel) const;
  // How many workers went away with a kernel in hand since the last call, by kernel.
  std::map<Digest, int> take_lost() { return std::exchange(lost_, {}); }
  // Kernels done or failed since the last call; release() each that a program waited for.
  std::vector<Digest> take_settled();
  // ---- early answers (early_builds.cc) ----
  // Kernels whose TuningTask::early() changed since the last call.
  std::vector<Digest> take_built() { return std::exchange(built_, {}); }
  // Kernels that were handed out and found wrong since the last call.
  std::vector<Digest> take_refuted() { return std::exchange(refuted_, {}); }
  // The kernel is about to be answered before it is verified. REQUIRES: it has an early().
  void hand_out(int64_t now_ms, const Digest& kernel, Actions& out);
  // Whether the task of the kernel knows something from those whose reports are taken back.
  bool has_heard(const Digest& kernel, const TakingBackBegan& event) const;
  // Forgets what is known of these results, and remembered failures. REQUIRES: no program waits for
  // them.
  void take_back(const TakingBackBegan& event);
  // Between these two a planner may have read records that are older than what a task knows, so no
  // task is forgotten meanwhile.
  uint64_t plan_started();
  void plan_finished(uint64_t ticket);

  // ---- events ----
  void report(int64_t now_ms, ReportReceived event, Actions& out);
  void worker_gone(int64_t now_ms, const WorkerId& id, Actions& out);
  void drain(const WorkerId& id);
  void kernel_stored(const Digest& kernel, const Status& status);
  void records_stored(const WorkerId& worker, const std::vector<ResultAck>& acks);
  void tick(int64_t now_ms, Actions& out);
  // At the end of every step: opens leases, and sends orders to the workers that have changes.
  void dispatch(int64_t now_ms, Actions& out);

  void add_stats(int64_t now_ms, Stats& stats) const;
  // The thing that a task for `target` waits for beside its turn, for people; empty: nothing.
  std::string waiting_for(const Target& target) const;

  // ---- Jury (confirming.cc) ----
  bool has_voter(const TuningTask& task, int candidate, Among among) const override;
  bool has_builder(const TuningTask& task, int candidate) const override;
  bool builds_apart(const TuningTask& task) const override {
    return workers_.builds_apart(task.target());
  }
  bool samples(const Digest& kernel, const WorkerId& builder, bool has_voter) override;

 private:
  using ResultId = std::pair<uint64_t, int>;  // lease, candidate
  void take_result(int64_t now_ms, const WorkerId& id, CandidateResult result, StoreRecords& store,
                   Actions& out);
  void keep_leases(int64_t now_ms, const WorkerId& id, const std::vector<LeaseState>& reported,
                   Actions& out);
  void drop_duplicate(TuningTask& task, int candidate, Job::Kind kind);
  void count_compiles(Worker& worker, int64_t compiles);
  void take_back(int64_t now_ms, uint64_t lease_id, bool blamed, Actions& out);
  void count_abandoned(const TuningTask& task, int before, const WorkerId& worker, Actions& out);
  void empty_quarantine(int64_t now_ms, Actions& out);
  void close(uint64_t lease_id);
  void close_leases(const TuningTask& task);
  void queue_variants();
  void queue(const TuningTask& task);
  void unqueue(const Digest& kernel);
  void erase(Digest kernel);  // the task, and what is counted of it
  std::string nobody_measures(const Target& target) const;
  void hear_builds(int64_t now_ms, TuningTask& task);
  void settle_with_other_builders(int64_t now_ms, Actions& out);
  void count_unverified(const Digest& kernel, int64_t bytes);
  void settle(int64_t now_ms, TuningTask& task, Actions& out);
  void fail_unserved(int64_t now_ms, Actions& out);
  void fail_if_unserved(int64_t now_ms, int64_t served_ms, const char* lacking, TuningTask& task,
                        Actions& out);
  void fail_unraced(int64_t now_ms, int64_t raced_ms, const Target& target, Actions& out);
  bool withdraw_libraries(TuningTask& task);
  void settle_without_libraries(int64_t now_ms, const Target& target, Actions& out);
  void leave_out_unmade(int64_t now_ms, TuningTask& task, Actions& out);
  void look_for_voters(int64_t now_ms, Actions& out);
  void hear_disputes(TuningTask& task, Actions& out);
  void retire(TuningTask& task);
  void forget_retired();

  const CoreOptions& options_;
  Dispatcher::Tasks tasks_;
  LeaseTable leases_;
  WorkerRegistry workers_;
  WorkQueue queue_, builds_;  // tasks that need a device; those of which something is to be built
  LatencyEstimator latency_;  // of a candidate, from one report to the next
  LatencyEstimator device_times_;  // of a candidate: verifying and timing alone
  Dispatcher dispatcher_{options_, tasks_,  leases_,  workers_,
                         queue_,   builds_, latency_, device_times_};
  FailureMemory failures_;
  CompileCounts compiles_;
  std::map<ResultId, Digest> storing_;               // accepted; the record is not durable yet
  std::map<WorkerId, std::vector<ResultAck>> acks_;  // to be sent with the next orders
  std::set<WorkerId> changed_;                       // orders are due
  bool dispatch_due_ = false;                        // work or a slot came free
  std::vector<Digest> settled_;
  std::vector<Digest> built_, refuted_;
  std::unordered_map<Digest, int64_t> unverified_;  // bytes of binaries, by kernel; no zeros
  int64_t unverified_bytes_ = 0;                    // their sum
  std::unordered_map<Digest, int64_t> shared_ms_;   // when hand_out() last gave the binary
  std::set<Digest> unresolved_;            // handed out, and forgotten before they were verified
  std::map<std::string, bool> apart_;      // targets of queued work: whether it is built apart
  std::set<Digest> confirming_;            // tasks that ask about a candidate
  std::set<Digest> holding_;               // tasks whose variants wait (tuning_variants.cc)
  std::map<WorkerId, int> since_sampled_;  // winners, by who built them
  int64_t fleet_due_ms_ = 0;  // workers of an earlier incarnation have reported by then
  uint64_t plans_ = 0;
  std::set<uint64_t> plans_out_;
  std::deque<std::pair<uint64_t, Digest>>
      retired_;                               // unneeded, and the number of plans started by then
  std::map<std::string, int64_t> served_ms_;  // targets waited for: when a worker was last there
  std::map<std::string, int64_t> raced_ms_;   // the same of workers that time finals
  std::map<Digest, int> lost_;                // kernels: what worker processes they have cost
  int64_t compiled_ = 0, measured_ = 0, retries_ = 0, abandoned_ = 0, store_failures_ = 0,
          withdrawn_ = 0;
};

}  // namespace kiln
