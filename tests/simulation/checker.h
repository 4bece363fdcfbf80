// Checker: watches every event that reaches the core and every action that comes out, keeps its own
// small model of what is open, leased, accepted and durable, and says at once when an invariant of
// coordinator/core/events.h is broken. Knows nothing of how the core works.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "tests/simulation/bounds_watch.h"
#include "tests/simulation/early_watch.h"
#include "tests/simulation/fairness_watch.h"
#include "tests/simulation/finals_watch.h"
#include "tests/simulation/fleet_watch.h"
#include "tests/simulation/reason_watch.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/store.h"
#include "tests/simulation/truth.h"

namespace kiln::simulation {

class Checker {
 public:
  Checker(const Truth& truth, const Scenario& scenario, const CoreOptions& options)
      : truth_(truth),
        scenario_(scenario),
        options_(options),
        fleet_(options),
        fairness_(options),
        bounds_(options),
        reasons_(truth, scenario, options) {}

  // A coordinator starts; what is in the store is what it may know.
  void incarnation_begins(const Store& store);
  void at(int64_t now_ms) { now_ms_ = now_ms; }  // of what it sees next
  void saw(const Stats& stats);                  // now and then
  // A step that may have queued candidates: how many waited before it, and after.
  void saw_queue(int64_t before, int64_t after);
  void saw(const Event& event);
  void saw(const Action& action);
  // Programs with this kernel are revoked, up to a serial; durable.
  void revoked(const Digest& kernel, int64_t through) { early_.revoked(kernel, through); }
  // A record that the full disk kept out of the store may be measured again.
  void record_lost(const TuningRecord& record);

  // Of a pool: something was written under a term, while `current` was the last that began.
  void saw_write(uint64_t epoch, uint64_t current);
  void saw_objects(const Store& store);
  // `whole`: its binaries are there.
  void saw_program_forgotten(bool whole);

  size_t open_requests() const { return open_.size(); }
  // Programs that were answered as queued and are neither stored nor failed: key, target.
  const std::map<Digest, Target>& promised() const { return promised_; }
  // By key, a request that a stale program or tier 0 answered, and whose own was not stored since.
  const std::map<Digest, CompileRequest>& owed_successors() const { return owed_successors_; }
  // The first violation: "invariant N: ...".
  const std::optional<std::string>& violation() const { return violation_; }
  int64_t accepted() const { return accepted_count_; }
  // Finished measurements that came under a lease of an earlier incarnation, each once: all that a
  // coordinator's death can cost, and more than it does, since some were stored already.
  int64_t fenced() const { return std::ssize(fenced_); }

 private:
  using RequestId = std::pair<ClientId, uint64_t>;
  using ResultId = std::pair<uint64_t, int>;
  using CandidateId = std::pair<Digest, std::string>;  // kernel key, schedule
  struct KnownLease {
    WorkerId worker;
    uint64_t epoch = 0;
    Job::Kind kind = Job::Kind::kScreen;
    Digest kernel;
    std::map<int, Schedule> outstanding;
  };
  void fail(int invariant, const std::string& what);
  void fail_if(int invariant, const std::optional<std::string>& what);
  void saw_for_watches(const Event& event);
  void saw_request(const RequestReceived& event);
  void saw_final(const CandidateResult& result);
  void saw_answer(const Answer& answer);
  int slots_held(const SendOrders& orders, bool builds) const;
  void saw_stale(const Digest& key, const CompileRequest& request, const CompileReply& reply);
  void saw_tier0(const CompileRequest& request);
  void saw_program(const Digest& key, CacheOutcome outcome, const Answer& answer);
  void saw_orders(const SendOrders& orders);
  void saw_job(const WorkerId& worker, const Job& job);
  void check_place(const WorkerReport& worker, const Job& job);
  bool has_template(const WorkerId& worker, const Schedule& schedule) const;
  void check_hedge(const KnownLease& lease, const CandidateJob& candidate);
  void saw_records(const StoreRecords& store);
  void saw_winner(const StoreKernel& store);
  void saw_end(const EndDetached& end);
  void check_record(const TuningRecord& record);
  void saw_choice(const Program& program);
  bool may_lack_an_alternative(const Program& program) const;
  void check_stored(const Store& store);
  void check_failure(const ClientId& client, const CompileRequest& request, const Error& error);
  void check_refusal(const ClientId& client, const CompileRequest& request, const Error& error);
  void trouble(const KnownLease& lease);
  std::optional<double> slowest_time(const TruePartition& partition, const Program& like) const;
  bool set_aside(const StoreKernel& store) const;

  const Truth& truth_;
  const Scenario& scenario_;
  const CoreOptions& options_;
  std::optional<std::string> violation_;
  int64_t accepted_count_ = 0;
  std::map<Digest, Target> promised_;                 // in whatever incarnation
  std::map<Digest, CompileRequest> owed_successors_;  // likewise
  int64_t now_ms_ = 0;
  uint64_t last_lease_ = 0, last_lease_of_earlier_incarnations_ = 0;
  std::set<ResultId> fenced_;
  FleetWatch fleet_;
  FairnessWatch fairness_;
  BoundsWatch bounds_;
  ReasonWatch reasons_;
  FinalsWatch finals_;
  EarlyWatch early_;

  // In this incarnation of the coordinator:
  TemplateVersions templates_;
  std::map<WorkerId, std::shared_ptr<const TemplateVersions>> worker_templates_;
  std::map<RequestId, CompileRequest> open_;                // accepted and not answered
  std::map<WorkerId, WorkerReport> workers_;                // as last reported
  std::map<uint64_t, KnownLease> leases_;                   // not taken back
  std::set<uint64_t> lease_ids_;                            // ever
  std::set<std::tuple<uint64_t, uint64_t, int>> reported_;  // lease, epoch, index a worker sent
  std::set<ResultId> accepted_, durable_;
  std::map<CandidateId, Verdict> finished_;      // screened, or rejected for good
  std::set<CandidateId> failed_in_final_;        // in the last one that said anything
  std::set<Digest> winners_;                     // stored, or being stored
  std::map<Digest, std::set<std::string>> won_;  // schedules, also of those that were not stored
  std::set<Digest> troubled_;  // kernels of which a candidate failed for a while since they won
  std::set<ResultId> owed_;  // results of an earlier incarnation, not acknowledged in this step yet
  std::set<Digest> programs_found_;            // the store had them
  std::map<Digest, std::string> stale_found_;  // likewise, of other templates: manifests
  std::set<Digest> programs_settled_;          // the store answered, well or badly
  std::set<Digest> kernels_unstored_;          // the store failed
  std::set<Digest> programs_stored_;           // or found
  std::set<Digest> detached_stored_;           // detached, and not ended
};

}  // namespace kiln::simulation
