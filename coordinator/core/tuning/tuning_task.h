// TuningTask: the tuning of one kernel, shared by every program that needs it. Knows candidates and
// verdicts, nothing of leases or of time. Plain value; one thread.
//
//   screening --all settled--> finals --all raced--> [confirming] -> storing --KernelStored--> done
//       |           |             ^                     ^
//       |           +-> rebuilding (a finalist, or the winner, was measured before a crash and its
//       |                           binary is gone: compiled again, not measured again)
//       +-- no candidate survived --> failed
//
// Reserves, which are expected to be far behind, are screened when nothing else came out right; what is
// much like another candidate is when that one came near the best (tuning_variants.cc).
// Confirming asks another worker about one candidate (votes.h); it goes back to where it came from,
// which elects again with what is known by then.
//
// Only advance() changes the stage, from what is known of the candidates; accept(), give_back() and
// recall() add to that. `default` mode has no finals: the first schedule that compiles and verifies
// wins. Where a worker does both apart (tuning_early.cc) it is built first, and may be answered
// before it is verified; in max-autotune what was built apart is screened as a worker's own builds are
// (tuning_builds.cc). A candidate may be leased twice, when its first worker is late: the first result that
// settles it counts. Finals are skipped when screening left one candidate within `race_drop` of the
// best, or within 5 % where one device timed both: a race would drop the others anyway; otherwise
// finals.h decides. A runner killed in a final counts like one killed in screening.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/tuning/candidate_table.h"
#include "coordinator/core/tuning/finals.h"
#include "coordinator/core/tuning/tenants.h"
#include "coordinator/core/tuning/votes.h"

namespace kiln {

class TuningTask {
 public:
  enum class Stage : uint8_t {
    kScreening,
    kRebuilding,
    kFinals,
    kConfirming,
    kStoring,
    kDone,
    kFailed
  };
  struct Batch {
    Job::Kind kind = Job::Kind::kScreen;
    std::vector<int> candidates;  // empty: nothing for this worker now
  };

  // Where a result comes from. `calibration`: the factor of the worker's device
  // (WorkerRegistry::calibration).
  struct Where {
    Reporter by;
    std::string toolkit;
    Target device;
    double calibration = 1;
    Standing standing{};
  };

  TuningTask(PlannedKernel planned, Target target, Mode mode, uint64_t epoch,
             const CoreOptions& options);

  const Digest& key() const { return key_; }
  const Target& target() const { return target_; }
  Family family() const { return family_; }
  Stage stage() const { return stage_; }
  uint64_t epoch() const { return epoch_; }
  const CandidateTable& candidates() const { return candidates_; }
  int waiting() const { return candidates_.waiting(); }  // candidates to be leased
  // Among those: what devices may have, and what is to be built first, by whoever has a compiler.
  int waiting_for_device() const { return candidates_.waiting(Line::kDevice); }
  int waiting_for_build() const { return candidates_.waiting(Line::kBuild); }
  bool only_retries() const { return !candidates_.waits_fresh(Line::kDevice); }
  bool is_built_apart() const { return candidates_.is_built_apart(); }

  // Moves to the stage that follows from what is known of the candidates.
  void advance(Jury& jury);

  // Takes up to `limit` candidates off the queue; a final is taken whole. A candidate that failed
  // on `worker` is left to another one while there are `others`, and is retried alone, so that a
  // bad one does not cost its neighbours their attempts. `lacks`: the templates that the worker
  // does not have; a final brings its binaries and takes none. `builds_itself`: it gets what is to be
  // built first too, when nothing else waits.
  Batch take(const WorkerId& worker, int limit, bool others,
             const std::vector<std::string>& lacks = {}, bool builds_itself = false);
  // The same of what is to be built, and no more.
  Batch take_build(const WorkerId& worker, bool others, const std::vector<std::string>& lacks = {});
  // Leases `candidates`, which are leased already, to a second worker.
  void hedge(const std::vector<int>& candidates);
  // The part of a job that describes one candidate.
  CandidateJob job(int candidate, Job::Kind kind) const;
  // Fills in all fields but lease, kind and candidates. `calibration`: the factor of the worker's
  // device (WorkerRegistry::calibration).
  void describe(Job& job, double calibration) const;

  // Takes the result of a leased candidate. Returns its record, which has the raw samples.
  TuningRecord accept(CandidateResult result, Job::Kind kind, const Where& where);
  // Whether a job of this kind can add nothing to what is known of `candidate`.
  bool is_settled(int candidate, Job::Kind kind) const;
  // The other lease of a candidate that was leased twice and is settled ended.
  void release(int candidate) { candidates_.release(candidate); }
  // A lease ended before these candidates were finished: they are queued again under a new epoch,
  // except those that a second worker has. `blamed`: it counts as a failed attempt.
  void give_back(const std::vector<int>& candidates, Job::Kind kind, const WorkerId& worker,
                 bool blamed, uint64_t new_epoch);
  // Nobody needs the task now: all leases end, without blame; advance() queues the work again.
  void recall(uint64_t new_epoch);
  // The templates of which candidates wait for a worker that has them.
  std::set<std::string> waiting_templates() const;
  // Gives up the candidates of a template that no worker has. The winner is that of the others, and
  // does not count as found among this template's, so that it is stale for the next plan.
  void leave_out(const std::string& template_name);
  bool left_out() const { return !left_out_.empty(); }
  // ---- libraries: a candidate that calls one is leased only where it is ----
  // The templates, and their libraries, of which candidates wait for a worker.
  std::map<std::string, std::string> waiting_libraries() const;
  // No worker has the library of this template: its candidates are given up as if they had not been
  // listed. The winner counts as found among them, since the fleet may never have it.
  void withdraw(const std::string& template_name) { candidates_.withdraw(template_name); }
  const std::map<std::string, std::string>& libraries() const { return libraries_; }
  // Candidates that somebody offers: a worker gets them with their binaries, if it has kOfferedTemplate.
  const std::map<std::string, OfferedKernel>& offered() const { return offered_; }
  // The libraries that finalists call; the worker that races them should have these very versions.
  std::vector<LibraryVersion> libraries_of_final() const;
  void fail(Error error);
  // ---- variants (tuning_variants.cc) ----
  bool has_variants() const { return !variants_.empty(); }  // that wait
  bool has_judged_variants() const { return variants_judged_; }
  // Queues what waits for others to be tried, since compilers have nothing else to do. False: nothing.
  bool queue_variants();

  // kStoring: the winner with its binary, once; later calls return nothing. `scale_of`: the scale
  // of a device's times (WorkerRegistry::reference_us), for the report.
  std::optional<StoreKernel> take_winner(const std::function<double(const Target&)>& scale_of);
  // kStoring -> kDone. A store that failed leaves the winner usable but not stored.
  void set_stored(bool stored);
  bool stored() const { return stored_; }
  const ProgramKernel& winner() const { return winner_; }  // REQUIRES: kStoring or kDone
  const Error& error() const { return error_; }            // REQUIRES: kFailed
  int retries() const { return retries_; }                 // attempts that had to be repeated
  int abandoned() const { return abandoned_; }             // candidates abandoned

  // ---- early answers of `default` mode (tuning_early.cc) ----
  // Whether something that was built waits for a device.
  bool has_built() const { return candidates_.has_unverified(); }
  // Whether the first choice waits for a worker to build it, or to verify it as it was built.
  bool waits_for_build() const {
    return mode_ == Mode::kDefault && stage_ == Stage::kScreening && waiting_for_build() > 0;
  }
  bool waits_for_verification() const;
  int choice() const { return first_open_; }  // the first candidate that is not rejected
  // The kernel as it may be answered now; nothing: its first choice is not built, or may not be
  // answered on its builder's word alone.
  std::optional<ProgramKernel> early() const;
  // Its binary, which somebody is about to be answered with. Nothing: the winner's is stored.
  std::optional<ShareBinary> hand_out();
  // Since the last call: whether early() has changed, and what was handed out was found wrong.
  bool take_early_changed() { return std::exchange(early_changed_, false); }
  bool take_refuted() { return std::exchange(refuted_, false); }
  // An earlier task of the kernel handed out some candidate, and was forgotten before it knew more.
  void was_handed_out() { handed_out_before_ = true; }
  // Whether somebody was answered with a binary of which it is not known yet whether it is right.
  bool is_handed_out() const {
    return stage_ != Stage::kStoring && stage_ != Stage::kDone &&
           (handed_out_ >= 0 || handed_out_before_);
  }
  int64_t unverified_bytes() const { return candidates_.unverified_bytes(); }
  bool is_unverified(int candidate) const;  // it is built, and nobody has tried it

  // ---- confirmation (tuning_confirmation.cc) ----
  bool is_confirming() const { return stage_ == Stage::kConfirming; }
  // kConfirming: the candidate that is asked about, and among whom; -1: none any more.
  int asked() const { return asked_; }
  Among asked_among() const { return asked_among_; }
  bool is_asked_of_nobody() const { return asked_ >= 0 && candidates_[asked_].leases == 0; }
  // Whether this worker's word would say something new of the candidate.
  bool may_vote(int candidate, Among among, const Reporter& worker,
                const std::string& toolkit) const;
  // Nobody is left who could answer.
  void withdraw_question();
  // kConfirming: whether the candidate that is asked about cannot win without an answer.
  bool must_be_confirmed() const { return must_be_confirmed(asked_); }
  // A worker that had it in hand is gone; how many are by now, and runners too.
  int worker_lost() { return ++lost_; }
  int lost() const { return lost_; }
  // Since the last call: who was contradicted, and why candidates were given up.
  std::vector<Distrust> take_distrusted() { return std::exchange(distrusted_, {}); }
  std::vector<std::string> take_disputes() { return std::exchange(disputes_, {}); }
  const std::set<Reporter>& heard() const { return heard_; }  // whose results it knows
  // Since the last call: who built what no device could load, and another's build of it could.
  std::vector<WorkerId> take_bad_builders() { return std::exchange(bad_builders_, {}); }

  // ---- programs that need the kernel ----
  void set_tenants(const Digest& program, Tenants tenants);
  bool remove_program(const Digest& program);                              // false: it had none
  const std::map<Digest, Tenants>& programs() const { return programs_; }  // compile tasks
  const Tenants& tenants() const { return tenants_; }                      // of all together

  int unstored_records = 0;  // results on their way to the store
  WorkerId home{};  // kept by Dispatcher: the device that has its inputs and reference; empty: none
  // Kept by TuningScheduler, for a task that waits for workers (fail_unserved):
  int64_t created_ms = 0;
  int64_t unconfirmed_since_ms = -1;                 // without a voter since then
  int64_t unserved_since_ms = -1;                    // without a worker for its target since then
  bool was_served = false;                           // some worker could run it at some time
  std::map<std::string, int64_t> unmade_since_ms{};  // templates that no worker has since then
  int64_t retired_at = -1;  // number of plans started by then; -1: a program needs it

 private:
  void resume(const std::vector<TuningRecord>& records);
  enum class Clearance : uint8_t { kMayWin, kAsked, kGone };
  void advance_autotune(Jury& jury);
  // tuning_early.cc
  void advance_default(Jury& jury);
  bool may_be_early(int candidate, const Jury& jury) const;
  void set_early(int candidate);
  void not_loaded(int candidate, std::string log, const Reporter& by);
  void keep_built(CandidateResult result, Recipe recipe, const Where& where);
  void judge_spilling();
  void verified(int candidate, const Where& where);
  void decide_winner(Jury& jury);
  bool all_clear(int winner, Jury& jury);
  // tuning_confirmation.cc
  Clearance clear(int candidate, Jury& jury);
  bool must_be_confirmed(int candidate) const;
  Clearance decided(int candidate, Among among);
  Clearance ask(int candidate, Among among);
  Clearance give_up(int candidate);
  bool is_decided(int candidate, Among among) const;
  bool question_is_out() const;
  bool seek_second_opinion(const Jury& jury);
  void take_vote(CandidateResult result, std::optional<Recipe> recipe, const Where& where);
  bool correct_time(int candidate, Measurement measurement, const Reporter& by);
  Provenance provenance(int candidate) const;
  ProgramKernel kernel_of(int candidate) const;
  void win(int candidate);
  void queue_finals();
  bool final_is_out() const;
  bool is_library(int candidate) const { return candidates_[candidate].is_library; }
  const OfferedKernel* offered(int candidate) const;
  bool is_reserve(int candidate) const {
    return reserves_.contains(candidates_.template_of(candidate));
  }
  int unsettled() const;
  void judge_reserves();
  void find_variants();
  void judge_variants();
  bool are_alike(int a, int b) const;
  bool call_reserves();
  int first_own() const;
  std::vector<int> choose_finalists() const;
  std::vector<size_t> within_reach(std::vector<size_t> finalists) const;
  double median_of(int candidate) const;
  double median_beside_winner(int candidate) const;
  std::string schedule_text(int candidate) const;
  bool has_binary(int candidate) const { return candidates_.binary(candidate) != nullptr; }
  void failed_in_final(int candidate, const WorkerId& worker, Verdict verdict, std::string log);
  void failed_transiently(int candidate, const WorkerId& worker, Verdict verdict, std::string log);
  void reject(int candidate, Verdict verdict, std::string log);
  void keep(CandidateResult result, Job::Kind kind, Recipe recipe, const Where& where);
  void screened(int candidate, const Measurement& measurement, const Where& where);
  void keep_finalists();
  void merge_tenants();
  Error no_survivor() const;
  KernelReport report() const;

  Digest key_, workload_;
  Family family_;
  std::string workload_text_;
  Target target_;
  Mode mode_;
  MeasurementPolicy policy_;
  double impossible_us_;
  int max_retries_, max_runner_deaths_, confirm_;

  Stage stage_ = Stage::kScreening;
  uint64_t epoch_;
  CandidateTable candidates_;
  bool screening_queued_ = false;  // every candidate not settled is queued, leased, or will be
  int first_open_ = 0;             // kDefault: all candidates before it are rejected
  int early_ = -1;                 // kDefault: the candidate that may be answered unverified
  int handed_out_ = -1;            // kDefault: the candidate that somebody was answered with
  bool early_changed_ = false, refuted_ = false, handed_out_before_ = false;
  std::string first_log_;       // why the first guess was rejected
  TemplateVersions templates_;  // that cover the workload
  std::set<std::string> left_out_;
  std::map<std::string, std::string> libraries_;  // by template
  std::map<std::string, OfferedKernel> offered_;  // by template: binaries that nobody builds
  std::set<std::string> reserves_;  // templates whose candidates wait for the others to be wrong
  std::set<int> variants_;          // that wait for their originals: none is queued or leased
  std::vector<int> passed_over_;    // of them
  bool variants_judged_ = false;
  Finals finals_;
  std::map<int, Votes> votes_;  // of candidates with a binary, or a terminal verdict
  std::map<int, Reporter> measured_by_;
  struct Other {
    CandidateBinary binary;
    Measurement measurement;  // calibrated
  };
  std::map<std::pair<int, Digest>, Other> others_;  // what voters built, and its time
  std::set<int> sampled_;                           // were, or were not, in the sample
  int asked_ = -1, opinions_ = 0;
  Among asked_among_ = Among::kOwners;
  std::vector<Distrust> distrusted_;
  std::vector<std::string> disputes_;
  bool disputed_ = false;  // workers do not agree about some candidate
  std::set<Reporter> heard_;
  std::map<int, CandidateBinary> not_loaded_;  // without bytes: what no device could load, at first
  std::vector<WorkerId> bad_builders_;
  std::set<int>
      spilling_;  // built apart, and not to be tried yet: none is queued, leased or settled
  int retries_ = 0, abandoned_ = 0, lost_ = 0;
  bool candidate_to_blame_ = false;  // for being abandoned, not the fleet
  std::map<Digest, Tenants> programs_;
  Tenants tenants_;
  int winner_index_ = -1;
  int fallback_index_ = -1;  // where the winner calls a library
  ProgramKernel winner_;
  bool winner_taken_ = false;
  bool stored_ = false;
  Error error_;
};

}  // namespace kiln
