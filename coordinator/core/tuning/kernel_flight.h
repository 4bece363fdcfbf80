// KernelFlight: the tuning of one kernel, shared by every program that needs it. Knows candidates
// and verdicts, nothing of workers' leases or of time. Plain value; one thread (the core's).
//
//   screening --all settled--> finals --all raced--> storing --KernelStored--> done
//       |           |             ^                     ^
//       |           +-> rebuilding (a finalist, or the winner, was measured before a crash and its
//       |                           binary is gone: compiled again, not measured again)
//       +-- no candidate survived --> failed
//
// advance() alone moves it, from what is known of the candidates; accept(), give_back() and
// recall() only add to what is known. `default` mode has no finals: the first schedule that
// compiles and verifies wins. A candidate may be leased twice, when its first worker is late: the
// first result that settles it counts. Finals are skipped when screening left one candidate within
// `race_drop` of the best: racing drops the others anyway. Else finals.h says who wins. What a
// candidate does to its runner in a final counts as what it did in its screening.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/tuning/candidate_table.h"
#include "coordinator/core/tuning/demand.h"
#include "coordinator/core/tuning/finals.h"

namespace kiln {

class KernelFlight {
 public:
  enum class Stage : uint8_t { kScreening, kRebuilding, kFinals, kStoring, kDone, kFailed };
  struct Batch {
    Job::Kind kind = Job::Kind::kScreen;
    std::vector<int> candidates;  // empty: nothing for this worker now
  };

  KernelFlight(PlannedKernel planned, Target target, Mode mode, uint64_t epoch,
               const CoreOptions& options);

  const Digest& key() const { return key_; }
  const Target& target() const { return target_; }
  Family family() const { return family_; }
  Stage stage() const { return stage_; }
  uint64_t epoch() const { return epoch_; }
  const CandidateTable& candidates() const { return candidates_; }
  int waiting() const { return candidates_.waiting(); }  // candidates to be leased

  // Decides what follows from what is known; a stage it leaves is left for good.
  void advance();

  // Takes up to `limit` candidates off the queue; a final is taken whole. A candidate that failed
  // on `worker` is left to another one while `others` can have it, and retried alone, so that a bad
  // one does not cost its neighbours their attempts.
  Batch take(const WorkerId& worker, int limit, bool others);
  // Leases of `candidates`, which are leased, to a second worker.
  void hedge(const std::vector<int>& candidates);
  // What the worker is told about one candidate.
  CandidateJob job(int candidate, Job::Kind kind) const;
  // All fields but lease, kind, candidates. `calibration`: of the worker's device; its times are
  // multiplied by it before they are compared (worker_roster.h).
  void describe(Job& job, double calibration) const;

  // The result of a leased candidate. Returns what is to be remembered of it: the raw samples.
  TuningRecord accept(CandidateResult result, Job::Kind kind, const WorkerId& worker,
                      const Target& device, double calibration);
  // Whether nothing more is to be learnt of a candidate by a job of that kind.
  bool is_settled(int candidate, Job::Kind kind) const;
  // Another lease of it ended, which settled it.
  void release(int candidate) { candidates_.release(candidate); }
  // The lease ended before these were finished: queued again under a new epoch, but for those that
  // a second worker has. `blamed`: it counts as a failed attempt.
  void give_back(const std::vector<int>& candidates, Job::Kind kind, const WorkerId& worker,
                 bool blamed, uint64_t new_epoch);
  // Nobody needs the flight now: all leases end, without blame; advance() queues the work again.
  void recall(uint64_t new_epoch);
  void fail(Error error);

  // kStoring: the winner, with its binary, once. Later calls: std::nullopt. `scale_of` says on what
  // scale times of a device are, for its report.
  std::optional<StoreKernel> take_winner(const std::function<double(const Target&)>& scale_of);
  // kStoring -> kDone. A store that failed leaves the winner usable but not stored.
  void set_stored(bool stored);
  bool stored() const { return stored_; }
  const ProgramKernel& winner() const { return winner_; }  // REQUIRES: kStoring or kDone
  const Error& error() const { return error_; }            // REQUIRES: kFailed
  int retries() const { return retries_; }                 // attempts that had to be repeated
  int set_aside() const { return set_aside_; }  // candidates given up after transient failures

  // ---- who needs it ----
  void set_demand(const Digest& program, Demand demand);
  bool remove_demand(const Digest& program);                              // false: it had none
  const std::map<Digest, Demand>& programs() const { return programs_; }  // program flights
  const Demand& demand() const { return demand_; }                        // of all together

  int unstored_records = 0;  // results on their way to the store
  // The floor's, of a flight that waits for workers (fail_unserved).
  int64_t created_ms = 0;
  int64_t unserved_since_ms = -1;  // no worker for its target since, as of the last look
  bool was_served = false;         // some worker could run it at some time
  int64_t retired_at = -1;         // in plans started; -1: somebody needs it

 private:
  void resume(const std::vector<TuningRecord>& records);
  void advance_default();
  void advance_autotune();
  void decide_winner();
  void win(int candidate);
  void queue_finals();
  bool final_is_out() const;
  bool has_binary(int candidate) const { return candidates_.binary(candidate) != nullptr; }
  void failed_in_final(int candidate, const WorkerId& worker, Verdict verdict, std::string log);
  void failed_transiently(int candidate, const WorkerId& worker, Verdict verdict, std::string log);
  void reject(int candidate, Verdict verdict, std::string log);
  void keep(CandidateResult result, Job::Kind kind, Recipe recipe, const Target& device,
            double calibration);
  void sum_demand();
  Error no_survivor() const;
  KernelReport report() const;

  Digest key_, workload_;
  Family family_;
  std::string workload_text_;
  Target target_;
  Mode mode_;
  MeasurementPolicy policy_;
  int max_retries_, max_runner_deaths_;

  Stage stage_ = Stage::kScreening;
  uint64_t epoch_;
  CandidateTable candidates_;
  bool screening_queued_ = false;  // every candidate not settled is queued, leased, or will be
  int first_open_ = 0;             // kDefault: all before it are rejected
  std::string first_log_;          // why the first guess was rejected
  Finals finals_;
  int retries_ = 0, set_aside_ = 0;
  bool candidate_to_blame_ = false;  // for being set aside: not the fleet's fault
  std::map<Digest, Demand> programs_;
  Demand demand_;
  int winner_index_ = -1;
  ProgramKernel winner_;
  bool winner_taken_ = false;
  bool stored_ = false;
  Error error_;
};

}  // namespace kiln
