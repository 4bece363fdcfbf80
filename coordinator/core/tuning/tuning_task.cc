#include "coordinator/core/tuning/tuning_task.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "compiler_core/base/check.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/program/cubin_resources.h"
#include "coordinator/core/mutation.h"
#include "coordinator/core/tuning/failures.h"

namespace kiln {
namespace {

constexpr size_t kMaxLogBytes = 4096;
// A candidate blamed in a final killed the common runner, then its own (worker/jobs/evaluation.h).
constexpr int kDeathsInAFinal = 2;

std::string bounded(std::string log) {
  if (log.size() > kMaxLogBytes) log.resize(kMaxLogBytes);
  return log;
}

// Times a device could have taken. A worker that sends others is treated as one that failed.
bool plausible(const Measurement& measurement, double impossible_us) {
  return std::all_of(measurement.samples_us.begin(), measurement.samples_us.end(),
                     [=](double us) { return std::isfinite(us) && us > impossible_us; });
}

// Why a result cannot be what its verdict says, or nullptr. That is a fault of the worker, not of
// the candidate.
const char* fault_of(const CandidateResult& result, Job::Kind kind, bool recipe_parses,
                     double impossible_us) {
  if (result.verdict != Verdict::kOk) return nullptr;
  if (!plausible(result.measurement, impossible_us)) return "the worker sent impossible times";
  if (!recipe_parses) return "the worker sent a recipe that does not parse";
  const bool is_built = kind == Job::Kind::kCompile || kind == Job::Kind::kBuild;
  if (is_built && result.binary.empty()) return "the worker sent no binary";
  if (kind == Job::Kind::kFinal && result.measurement.samples_us.empty())
    return "the worker sent no times of the final";
  return nullptr;
}

// The same of a worker that was given the binary: its word about another one counts for nothing.
const char* fault_of_verification(const CandidateResult& result, double impossible_us) {
  if (result.verdict != Verdict::kOk) return nullptr;
  if (!plausible(result.measurement, impossible_us)) return "the worker sent impossible times";
  return result.binary.empty() ? nullptr : "the worker built again what it was given";
}

// A result in which two workers had a part has the weaker standing of the two.
Standing lesser(const Standing& a, const Standing& b) {
  return {a.times_finals && b.times_finals, a.is_enough && b.is_enough};
}

uint64_t seed_of(const Digest& key) {
  uint64_t seed;
  std::memcpy(&seed, key.bytes.data(), sizeof seed);
  return seed;
}

}  // namespace

TuningTask::TuningTask(PlannedKernel planned, Target target, Mode mode, uint64_t epoch,
                       const CoreOptions& options)
    : key_(planned.key),
      workload_(planned.workload),
      family_(planned.family),
      workload_text_(std::move(planned.workload_text)),
      target_(std::move(target)),
      mode_(mode),
      policy_(options.policy),
      impossible_us_(planned.impossible_us),
      max_retries_(options.max_retries),
      max_runner_deaths_(options.max_runner_deaths),
      confirm_(options.confirm),
      epoch_(epoch),
      candidates_(planned.schedules, planned.libraries, planned.offered),
      templates_(std::move(planned.templates)),
      libraries_(std::move(planned.libraries)),
      offered_(std::move(planned.offered)),
      reserves_(std::move(planned.reserves)),
      finals_(options.max_retries) {
  if (planned.has_variants) find_variants();
  resume(planned.records);
}

// Measurements of earlier incarnations of the task. The first measurement of a schedule is its
// screening, a later one its final; a final is one measurement, so parts of two workers' do not
// make one. Transient failures are not remembered: they may have gone away.
void TuningTask::resume(const std::vector<TuningRecord>& records) {
  if (records.empty() || mutated(Mutation::kRepeatMeasured)) return;
  std::unordered_map<std::string, int> index;
  for (int i = 0; i < candidates_.size(); ++i)
    index.emplace(candidates_.schedule(i).to_string(), i);
  WorkerId raced_by;
  for (const TuningRecord& record : records) {
    if (failure_class(record.verdict) == FailureClass::kTransient) continue;
    const auto found = index.find(record.schedule.to_string());
    if (found == index.end() || candidates_[found->second].rejected) continue;
    const int i = found->second;
    heard_.insert({record.worker, record.owner});
    if (record.verdict != Verdict::kOk) {
      votes_[i].bad({record.worker, record.owner});
      reject(i, record.verdict, record.log);
    } else if (!record.measurement.samples_us.empty() &&
               plausible(record.measurement, impossible_us_)) {
      measured_by_[i] = {record.worker, record.owner};
      if (!candidates_[i].measured) {
        candidates_.measured(i, record.measurement.median_us());
      } else if (!mutated(Mutation::kRaceAgain)) {
        if (record.worker != raced_by) finals_.forget_times();
        raced_by = record.worker;
        finals_.finished(i, record.measurement);
      }
    }
  }
}

void TuningTask::advance(Jury& jury) {
  if (stage_ >= Stage::kStoring) return;
  if (stage_ == Stage::kConfirming) {
    if (question_is_out()) return;
    stage_ = Stage::kScreening;
  }
  if (mode_ == Mode::kDefault)
    advance_default(jury);
  else
    advance_autotune(jury);
}

// Also of the kernel beside a winner that calls a library. False: somebody is asked, or the task
// has gone on without the candidate.
bool TuningTask::all_clear(int winner, Jury& jury) {
  for (const int candidate : {winner, fallback_index_}) {
    if (candidate < 0) continue;
    const Clearance clearance = clear(candidate, jury);
    if (clearance == Clearance::kGone) advance(jury);
    if (clearance != Clearance::kMayWin) return false;
  }
  return true;
}

void TuningTask::advance_autotune(Jury& jury) {
  candidates_.build_apart(jury.builds_apart(*this) && candidates_.settled() < candidates_.size());
  if (!candidates_.is_built_apart()) candidates_.drop_unverified();  // devices build what they try
  if (!screening_queued_) {
    screening_queued_ = true;
    for (int i = 0; i < candidates_.size(); ++i)
      if (!candidates_[i].settled() && !is_reserve(i) && !variants_.contains(i))
        candidates_.want(i);
  }
  judge_variants();
  judge_spilling();
  if (unsettled() > 0) return;
  judge_reserves();
  if (candidates_.settled() < candidates_.size()) return;
  candidates_.build_apart(false);

  if (finals_.finalists().empty()) finals_.enter(choose_finalists());
  if (finals_.finalists().empty()) {
    if (call_reserves()) return advance_autotune(jury);
    if (!seek_second_opinion(jury)) fail(no_survivor());
    return;
  }
  decide_winner(jury);
}

// Without the reserves.
int TuningTask::unsettled() const {
  int count = candidates_.size() - candidates_.settled();
  for (int i = 0; i < candidates_.size() && count > 0 && !reserves_.empty(); ++i)
    count -= is_reserve(i) && !candidates_[i].settled();
  return count;
}

// Where something came out right they are given up as if they had not been listed.
void TuningTask::judge_reserves() {
  if (candidates_.best_us() == 0 && call_reserves()) return;
  for (const std::string& name : reserves_) candidates_.withdraw(name);
}

// From now on they are candidates like any other. What was right when they were given up may not be
// right any more. False: there are none.
bool TuningTask::call_reserves() {
  if (reserves_.empty() && passed_over_.empty()) return false;
  if (mutated(Mutation::kForgetReserves)) return false;
  stage_ = Stage::kScreening;
  for (const int i : std::exchange(passed_over_, {})) {
    candidates_.reconsider(i);
    candidates_.want(i);
  }
  for (int i = 0; i < candidates_.size(); ++i) {
    if (!is_reserve(i)) continue;
    if (candidates_[i].withdrawn) candidates_.reconsider(i);
    if (!candidates_[i].settled()) candidates_.want(i);
  }
  reserves_.clear();
  return true;
}

void TuningTask::decide_winner(Jury& jury) {
  if (stage_ == Stage::kFinals && final_is_out()) return;
  const auto is_own = [this](int i) { return !is_library(i); };
  if (!finals_.best_of(is_own)) {  // those were rejected in the final: others may do
    finals_.enter({});
    return advance_autotune(jury);
  }
  const auto winner = finals_.winner(policy_, mutated(Mutation::kSlowestWins));
  fallback_index_ = winner && is_library(*winner) ? *finals_.best_of(is_own) : -1;
  const bool has_fallback = fallback_index_ < 0 || has_binary(fallback_index_);
  if (winner && has_binary(*winner) && has_fallback) {
    if (all_clear(*winner, jury)) win(*winner);
    return;
  }

  stage_ = Stage::kRebuilding;
  if (winner && !has_fallback) candidates_.want(fallback_index_);
  if (winner) {
    if (!has_binary(*winner)) candidates_.want(*winner);
    return;
  }
  bool missing = false;
  for (int i : finals_.finalists()) {
    if (has_binary(i)) continue;
    candidates_.want(i);
    missing = true;
  }
  if (!missing) queue_finals();
}

bool TuningTask::final_is_out() const {
  return std::ranges::any_of(finals_.finalists(), [&](int i) {
    return candidates_[i].queued || candidates_[i].leases > 0;
  });
}

// Whole or not at all, and not while a part of an earlier run is still out.
void TuningTask::queue_finals() {
  stage_ = Stage::kFinals;
  if (final_is_out()) return;
  finals_.begin();
  for (int i : finals_.finalists()) candidates_.want(i);
}

TuningTask::Batch TuningTask::take(const WorkerId& worker, int limit, bool others,
                                   const std::vector<std::string>& lacks, bool builds_itself) {
  if (stage_ == Stage::kFinals) return {Job::Kind::kFinal, candidates_.take_all()};
  if (stage_ == Stage::kConfirming)
    return {mode_ == Mode::kDefault ? Job::Kind::kCompile : Job::Kind::kScreen,
            candidates_.take_all()};
  const bool compile = stage_ == Stage::kRebuilding || mode_ == Mode::kDefault;
  auto taken = candidates_.take(Line::kDevice, worker, limit, others, lacks);
  if (taken.empty() && builds_itself)
    taken = candidates_.take(Line::kBuild, worker, limit, others, lacks);
  return {compile ? Job::Kind::kCompile : Job::Kind::kScreen, std::move(taken)};
}

std::set<std::string> TuningTask::waiting_templates() const {
  return stage_ == Stage::kFinals ? std::set<std::string>() : candidates_.queued_templates();
}

void TuningTask::leave_out(const std::string& template_name) {
  left_out_.insert(template_name);
  const auto give_up = [this](int i) {
    reject(i, Verdict::kDeviceLost, "no worker has its template");
  };
  std::ranges::for_each(candidates_.unqueue(template_name), give_up);
  for (int i = 0; i < candidates_.size(); ++i)  // in default mode most were not queued yet
    if (!candidates_[i].settled() && candidates_[i].leases == 0 &&
        candidates_.template_of(i) == template_name)
      give_up(i);
}

void TuningTask::hedge(const std::vector<int>& candidates) {
  for (int i : candidates) candidates_.lease_again(i);
}

// Null: its template makes it.
const OfferedKernel* TuningTask::offered(int candidate) const {
  if (offered_.empty()) return nullptr;
  const auto found = offered_.find(candidates_.template_of(candidate));
  return found == offered_.end() ? nullptr : &found->second;
}

CandidateJob TuningTask::job(int candidate, Job::Kind kind) const {
  CandidateJob job{candidate, candidates_.schedule(candidate), {}, {}};
  if (const OfferedKernel* given = offered(candidate)) {
    job.recipe_json = recipe_to_json(given->recipe);
    job.binary = given->binary;
    return job;
  }
  if (kind == Job::Kind::kFinal || (kind != Job::Kind::kBuild && is_unverified(candidate))) {
    const CandidateBinary* built = candidates_.binary(candidate);
    CHECK(built != nullptr, "a finalist has its binary");
    for (int i = 0; i < candidates_.size() && mutated(Mutation::kSwapBuilds); ++i)
      if (i != candidate && is_unverified(i)) built = candidates_.binary(i);
    if (mutated(Mutation::kSwapBinaries) && kind == Job::Kind::kFinal)
      built = candidates_.binary(finals_.finalists().front());
    job.recipe_json = recipe_to_json(built->recipe);
    job.binary = built->bytes;
    job.local_bytes = built->local_bytes;
  }
  return job;
}

void TuningTask::describe(Job& job, double calibration) const {
  job.kernel_key = key_;
  job.target = target_;
  job.family = family_;
  job.workload_text = without_origins(workload_text_);
  job.policy = policy_;
  job.seed = seed_of(key_);
  // A confirmer runs it to the end, however slow it is.
  if (stage_ != Stage::kConfirming) job.incumbent_us = candidates_.best_us() / calibration;
}

TuningRecord TuningTask::accept(CandidateResult result, Job::Kind kind, const Where& where) {
  const int index = result.index;
  CHECK(candidates_[index].leases > 0 || mutated(Mutation::kTakeResultsTwice),
        "only a leased candidate has a result");
  candidates_.release(index);

  TuningRecord record;
  record.kernel_key = key_;
  record.workload = workload_;
  record.target = where.device;
  record.schedule = candidates_.schedule(index);
  record.template_version = find_version(templates_, record.schedule.template_name);
  record.worker = where.by.worker;
  record.owner = where.by.key;
  record.seed = seed_of(key_);
  if (!result.binary.empty()) record.binary = Digest::of(result.binary);

  // A binary that was given is what the worker tried; one that it sends is none.
  const OfferedKernel* given = kind == Job::Kind::kFinal ? nullptr : offered(index);
  const bool sent_another = given != nullptr && !result.binary.empty();
  if (given != nullptr && !sent_another && result.verdict == Verdict::kOk) {
    result.recipe_json = recipe_to_json(given->recipe);
    result.binary = given->binary;
  }
  heard_.insert(where.by);
  lost_ += result.verdict == Verdict::kRunnerDied;
  const bool is_vote = stage_ == Stage::kConfirming && index == asked_;
  auto recipe =
      result.binary.empty() ? Result<Recipe>(Recipe{}) : recipe_from_json(result.recipe_json);
  const bool verifies =
      kind != Job::Kind::kBuild && kind != Job::Kind::kFinal && !is_vote && is_unverified(index);
  const char* fault = verifies ? fault_of_verification(result, impossible_us_)
                               : fault_of(result, is_vote ? Job::Kind::kCompile : kind,
                                          recipe.has_value(), impossible_us_);
  if (sent_another && fault == nullptr) fault = "the worker built again what it was given";
  if (fault != nullptr) {
    result.verdict = Verdict::kDeviceLost;
    result.log = fault;
  }
  // A vote is no screening: resume() would take its times for those of a final.
  if (result.verdict == Verdict::kOk && !is_vote) record.measurement = result.measurement;
  record.verdict = result.verdict;
  record.log = result.log = bounded(std::move(result.log));
  if (record.verdict == Verdict::kOk && recipe && !result.binary.empty())
    if (const auto resources = resources_of(result.binary, *recipe))
      record.log = to_string(*resources);

  if (is_vote) {
    take_vote(std::move(result), recipe ? std::optional(*std::move(recipe)) : std::nullopt, where);
  } else if (result.verdict == Verdict::kOk) {
    if (kind == Job::Kind::kFinal) {
      for (double& us : result.measurement.samples_us) us *= where.calibration;
      candidates_.recovered(index);
      measured_by_[index] = where.by;
      finals_.finished(index, std::move(result.measurement));
    } else if (verifies) {
      verified(index, where);
      if (kind == Job::Kind::kScreen) {
        CandidateBinary& tried = *candidates_.binary(index);
        tried.device = where.device;  // its times are that one's
        tried.standing = lesser(tried.standing, where.standing);
        screened(index, result.measurement, where);
        keep_finalists();
      }
    } else if (kind == Job::Kind::kBuild) {
      keep_built(std::move(result), *std::move(recipe), where);
    } else {
      keep(std::move(result), kind, *std::move(recipe), where);
    }
  } else if (verifies && result.verdict == Verdict::kCompileFailed) {
    not_loaded(index, std::move(result.log), where.by);
  } else if (failure_class(result.verdict) == FailureClass::kTerminal &&
             !mutated(Mutation::kRetryTerminal)) {
    votes_[index].bad(where.by);
    reject(index, result.verdict, std::move(result.log));
  } else if (kind == Job::Kind::kFinal) {
    failed_in_final(index, where.by.worker, result.verdict, std::move(result.log));
  } else {
    CandidateTrouble& trouble = candidates_.trouble(index);
    trouble.runner_deaths += result.verdict == Verdict::kRunnerDied;
    trouble.time_outs += result.verdict == Verdict::kTimedOut;
    failed_transiently(index, where.by.worker, result.verdict, std::move(result.log));
  }
  return record;
}

void TuningTask::keep(CandidateResult result, Job::Kind kind, Recipe recipe, const Where& where) {
  candidates_.recovered(result.index);
  if (kind == Job::Kind::kScreen) screened(result.index, result.measurement, where);
  if (result.binary.empty()) return;
  const Digest made = made_of(result.recipe_json, result.binary);
  votes_[result.index].good(where.by, made);
  candidates_.keep_binary(result.index, {std::move(recipe), std::move(result.binary), where.device,
                                         where.by, where.toolkit, made, where.standing});
  if (kind == Job::Kind::kScreen) keep_finalists();
}

void TuningTask::screened(int candidate, const Measurement& measurement, const Where& where) {
  candidates_.measured(candidate, measurement.median_us() * where.calibration);
  measured_by_[candidate] = where.by;
}

// Only the best `finalists` medians can reach the finals.
void TuningTask::keep_finalists() {
  candidates_.keep_best_binaries(static_cast<size_t>(std::max(1, policy_.finalists)));
}

bool TuningTask::is_settled(int candidate, Job::Kind kind) const {
  const CandidateState& c = candidates_[candidate];
  if (c.rejected) return true;
  if (kind == Job::Kind::kScreen) return c.measured;
  return has_binary(candidate) && (kind == Job::Kind::kBuild || !is_unverified(candidate));
}

void TuningTask::give_back(const std::vector<int>& candidates, Job::Kind kind,
                           const WorkerId& worker, bool blamed, uint64_t new_epoch) {
  epoch_ = new_epoch;
  if (kind == Job::Kind::kFinal && blamed) {
    finals_.cut_short();
    ++retries_;
  }
  for (int index : candidates) {
    candidates_.release(index);
    if (stage_ == Stage::kConfirming && index == asked_) {
      if (blamed) votes_[index].excuse(worker);
      asked_ = -1;  // another one is asked, if there is one
      continue;
    }
    if (kind == Job::Kind::kFinal || candidates_[index].leases > 0) continue;
    if (blamed)
      failed_transiently(index, worker, Verdict::kRunnerDied,
                         "its worker went away or made no progress");
    else if (!candidates_[index].settled())
      candidates_.want(index);
  }
}

void TuningTask::recall(uint64_t new_epoch) {
  epoch_ = new_epoch;
  candidates_.recall();
  spilling_.clear();
  screening_queued_ = false;
}

// All of them are run again, but for those that are abandoned.
void TuningTask::failed_in_final(int candidate, const WorkerId& worker, Verdict verdict,
                                 std::string log) {
  if (verdict == Verdict::kDeviceLost || mutated(Mutation::kForgiveFinals)) {
    finals_.cut_short();
    ++retries_;
    return;
  }
  finals_.failed(candidate);
  CandidateTrouble& trouble = candidates_.trouble(candidate);
  if (verdict == Verdict::kRunnerDied) trouble.runner_deaths += kDeathsInAFinal;
  trouble.time_outs += verdict == Verdict::kTimedOut;
  failed_transiently(candidate, worker, verdict, std::move(log));
}

void TuningTask::failed_transiently(int candidate, const WorkerId& worker, Verdict verdict,
                                    std::string log) {
  CandidateTrouble& trouble = candidates_.trouble(candidate);
  trouble.avoid = worker;
  ++trouble.failures;
  const bool hopeless =
      trouble.failures > max_retries_ || trouble.runner_deaths >= max_runner_deaths_;
  if (hopeless && !mutated(Mutation::kRetryForever)) {
    ++abandoned_;
    if (trouble.runner_deaths + trouble.time_outs >= max_runner_deaths_) candidate_to_blame_ = true;
    return reject(candidate, verdict, std::move(log));
  }
  ++retries_;
  if (!candidates_[candidate].settled()) candidates_.want(candidate);
}

void TuningTask::reject(int candidate, Verdict verdict, std::string log) {
  candidates_.reject(candidate, verdict);
  spilling_.erase(candidate);
  if (candidate == early_) set_early(-1);
  if (candidate == handed_out_ || handed_out_before_) {
    handed_out_ = -1;
    handed_out_before_ = false;  // whichever it was, it is withdrawn with this one
    refuted_ = true;
  }
  finals_.withdraw(candidate);
  if (candidate == first_own()) first_log_ = bounded(std::move(log));
}

// ---- Who needs it ----

void TuningTask::set_tenants(const Digest& program, Tenants tenants) {
  programs_[program] = std::move(tenants);
  merge_tenants();
}

bool TuningTask::remove_program(const Digest& program) {
  if (programs_.erase(program) == 0) return false;
  merge_tenants();
  return true;
}

void TuningTask::merge_tenants() {
  tenants_.clear();
  for (const auto& [program, tenants] : programs_)
    for (const auto& [tenant, priority] : tenants) add_tenant(tenants_, tenant, priority);
}

}  // namespace kiln
