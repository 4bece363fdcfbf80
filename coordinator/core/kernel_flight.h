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
// compiles and verifies wins. Finals are skipped when screening left one candidate within
// `race_drop` of the best: racing drops the others anyway. An interleaved final is one measurement:
// cut short, it is run again as a whole, and after max_retries such runs the order of the screening
// stands.
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/core.h"

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
  Stage stage() const { return stage_; }
  uint64_t epoch() const { return epoch_; }
  int waiting() const { return static_cast<int>(queue_.size()); }  // candidates to be leased
  int candidates() const { return static_cast<int>(candidates_.size()); }
  int settled() const;  // measured or rejected
  // Best median so far, 0 when there is none: what a racing worker compares with.
  double incumbent_us() const;

  // Decides what follows from what is known; a stage it leaves is left for good.
  void advance();

  // Takes up to `limit` candidates off the queue; a final is taken whole. A candidate that failed
  // on `worker` is left to another one while `others` can have it, and retried alone, so that a bad
  // one does not cost its neighbours their attempts.
  Batch take(const WorkerId& worker, int limit, bool others);
  // What the worker is told about one candidate.
  CandidateJob job(int candidate, Job::Kind kind) const;
  void describe(Job& job) const;  // all fields but lease, kind, candidates

  // The result of a leased candidate. Returns what is to be remembered of it.
  TuningRecord accept(CandidateResult result, Job::Kind kind, const WorkerId& worker,
                      const Target& device);
  // The lease was lost before these were finished: queued again under a new epoch.
  void give_back(const std::vector<int>& candidates, Job::Kind kind, const WorkerId& worker,
                 uint64_t new_epoch);
  // Nobody needs the flight now: all leases end, without blame; advance() queues the work again.
  void recall(uint64_t new_epoch);
  void fail(Error error);

  // kStoring: the winner, with its binary, once. Later calls: std::nullopt.
  std::optional<StoreKernel> take_winner();
  // kStoring -> kDone. A store that failed leaves the winner usable but not stored.
  void set_stored(bool stored);
  bool stored() const { return stored_; }
  const ProgramKernel& winner() const { return winner_; }  // REQUIRES: kStoring or kDone
  const Error& error() const { return error_; }            // REQUIRES: kFailed
  int retries() const { return retries_; }                 // attempts that had to be repeated

  ClientId owner;                  // who asked first: work is shared out among owners
  std::set<Digest> programs;       // program flights that wait for it
  int unstored_records = 0;        // results on their way to the store
  int64_t unserved_since_ms = -1;  // no worker for its target since; -1: there is one
  bool was_served = false;         // some worker could run it at some time
  int64_t retired_at = -1;         // in plans started; -1: somebody needs it

 private:
  struct Candidate {
    enum class Work : uint8_t { kNone, kQueued, kLeased };
    Schedule schedule;
    Work work = Work::kNone;
    bool measured = false;  // screening is over for it (its samples may be none)
    bool rejected = false;  // a terminal verdict, or set aside after max_retries
    int attempts = 0;       // transient failures since the last success
    Verdict verdict = Verdict::kOk;
    std::string log;  // why it was rejected
    WorkerId avoid;   // where it failed last
    Measurement screened, raced;
    Recipe recipe;
    std::string binary;  // kept for the best few only
    Target device;       // where it was compiled
  };
  void resume(const std::vector<TuningRecord>& records);
  void advance_default();
  void advance_autotune();
  void decide_winner();
  void win(int candidate);
  void want(int candidate);
  void queue_finals();
  bool all_raced() const;
  void retry_or_reject(int candidate, const WorkerId& worker, Verdict verdict, std::string log);
  void reject(int candidate, Verdict verdict, std::string log);
  void keep(Candidate& c, CandidateResult result, Job::Kind kind, Recipe recipe,
            const Target& device);
  void drop_spare_binaries();
  Error no_survivor() const;
  KernelReport report() const;

  Digest key_, workload_;
  Family family_;
  std::string workload_text_;
  Target target_;
  Mode mode_;
  MeasurementPolicy policy_;
  int max_retries_;

  Stage stage_ = Stage::kScreening;
  uint64_t epoch_;
  std::vector<Candidate> candidates_;
  std::deque<int> queue_;
  std::vector<int> finalists_;  // leader of the screening first
  int finals_cut_short_ = 0;
  int retries_ = 0;
  int winner_index_ = -1;
  ProgramKernel winner_;
  bool winner_taken_ = false;
  bool stored_ = false;
  Error error_;
};

}  // namespace kiln
