#include "coordinator/core/kernel_flight.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "compiler_core/base/check.h"
#include "compiler_core/tune/race.h"
#include "coordinator/core/failure_class.h"
#include "coordinator/core/planted.h"

namespace kiln {
namespace {

constexpr size_t kMaxLogBytes = 4096;

std::string bounded(std::string log) {
  if (log.size() > kMaxLogBytes) log.resize(kMaxLogBytes);
  return log;
}

// Times a device could have taken. A worker that sends others is treated as one that failed.
bool plausible(const Measurement& measurement) {
  return std::all_of(measurement.samples_us.begin(), measurement.samples_us.end(),
                     [](double us) { return std::isfinite(us) && us > 0; });
}

// Why a result cannot be what its verdict says, or nullptr. That is a fault of the worker, not of
// the candidate.
const char* fault_of(const CandidateResult& result, Job::Kind kind, bool recipe_parses) {
  if (result.verdict != Verdict::kOk) return nullptr;
  if (!plausible(result.measurement)) return "the worker sent impossible times";
  if (!recipe_parses) return "the worker sent a recipe that does not parse";
  if (kind == Job::Kind::kCompile && result.binary.empty()) return "the worker sent no binary";
  if (kind == Job::Kind::kFinal && result.measurement.samples_us.empty())
    return "the worker sent no times of the final";
  return nullptr;
}

uint64_t seed_of(const Digest& key) {
  uint64_t seed;
  std::memcpy(&seed, key.bytes.data(), sizeof seed);
  return seed;
}

}  // namespace

KernelFlight::KernelFlight(PlannedKernel planned, Target target, Mode mode, uint64_t epoch,
                           const CoreOptions& options)
    : key_(planned.key),
      workload_(planned.workload),
      family_(planned.family),
      workload_text_(std::move(planned.workload_text)),
      target_(std::move(target)),
      mode_(mode),
      policy_(options.policy),
      max_retries_(options.max_retries),
      max_runner_deaths_(options.max_runner_deaths),
      epoch_(epoch),
      candidates_(planned.schedules) {
  resume(planned.records);
}

// What earlier lives of the flight measured. The first measurement of a schedule is its screening,
// a later one its final; a final is one measurement, so parts of two workers' do not make one.
// Transient failures are not remembered: they may have gone away.
void KernelFlight::resume(const std::vector<TuningRecord>& records) {
  if (records.empty() || planted(PlantedBug::kRepeatMeasured)) return;
  std::unordered_map<std::string, int> index;
  for (int i = 0; i < candidates_.size(); ++i)
    index.emplace(candidates_.schedule(i).to_string(), i);
  WorkerId raced_by;
  for (const TuningRecord& record : records) {
    if (failure_class(record.verdict) == FailureClass::kTransient) continue;
    const auto found = index.find(record.schedule.to_string());
    if (found == index.end() || candidates_[found->second].rejected) continue;
    const int i = found->second;
    if (record.verdict != Verdict::kOk) {
      reject(i, record.verdict, record.log);
    } else if (!record.measurement.samples_us.empty() && plausible(record.measurement)) {
      if (!candidates_[i].measured) {
        candidates_.measured(i, record.measurement.median_us());
      } else {
        if (record.worker != raced_by) raced_.clear();
        raced_by = record.worker;
        raced_[i] = record.measurement;
      }
    }
  }
}

void KernelFlight::advance() {
  if (stage_ >= Stage::kStoring) return;
  if (mode_ == Mode::kDefault)
    advance_default();
  else
    advance_autotune();
}

void KernelFlight::advance_default() {
  while (first_open_ < candidates_.size() && candidates_[first_open_].rejected) ++first_open_;
  if (first_open_ == candidates_.size()) return fail(no_survivor());
  if (has_binary(first_open_))
    win(first_open_);
  else
    candidates_.want(first_open_);
}

void KernelFlight::advance_autotune() {
  if (!screening_queued_) {
    screening_queued_ = true;
    for (int i = 0; i < candidates_.size(); ++i)
      if (!candidates_[i].settled()) candidates_.want(i);
  }
  if (candidates_.settled() < candidates_.size()) return;

  std::erase_if(finalists_, [&](int i) { return candidates_[i].rejected; });
  if (finalists_.empty()) {
    std::vector<double> medians;
    for (int i = 0; i < candidates_.size(); ++i)
      medians.push_back(candidates_[i].rejected ? 0 : candidates_[i].screened_us);
    for (size_t i : pick_finalists(policy_, medians)) finalists_.push_back(static_cast<int>(i));
  }
  if (finalists_.empty()) return fail(no_survivor());
  decide_winner();
}

void KernelFlight::decide_winner() {
  int winner = -1;
  if (finalists_.size() == 1 || finals_cut_short_ > max_retries_) {
    winner = finalists_.front();
  } else if (all_raced()) {
    std::vector<Measurement> raced;
    for (int i : finalists_) raced.push_back(raced_.at(i));
    const auto order = rank(policy_, raced, 0);
    winner = finalists_[planted(PlantedBug::kSlowestWins) ? order.back() : order.front()];
  }
  if (winner >= 0 && has_binary(winner)) return win(winner);

  stage_ = Stage::kRebuilding;
  if (winner >= 0) return candidates_.want(winner);
  bool missing = false;
  for (int i : finalists_) {
    if (has_binary(i)) continue;
    candidates_.want(i);
    missing = true;
  }
  if (!missing) queue_finals();
}

bool KernelFlight::all_raced() const {
  return std::all_of(finalists_.begin(), finalists_.end(),
                     [&](int i) { return raced_.contains(i); });
}

// Whole or not at all, and not while a part of an earlier run is still out.
void KernelFlight::queue_finals() {
  stage_ = Stage::kFinals;
  for (int i : finalists_)
    if (candidates_[i].queued || candidates_[i].leases > 0) return;
  for (int i : finalists_) {
    raced_.erase(i);
    candidates_.want(i);
  }
}

KernelFlight::Batch KernelFlight::take(const WorkerId& worker, int limit, bool others) {
  if (stage_ == Stage::kFinals) return {Job::Kind::kFinal, candidates_.take_all()};
  const bool compile = stage_ == Stage::kRebuilding || mode_ == Mode::kDefault;
  return {compile ? Job::Kind::kCompile : Job::Kind::kScreen,
          candidates_.take(worker, limit, others)};
}

void KernelFlight::hedge(const std::vector<int>& candidates) {
  for (int i : candidates) candidates_.lease_again(i);
}

CandidateJob KernelFlight::job(int candidate, Job::Kind kind) const {
  CandidateJob job{candidate, candidates_.schedule(candidate), {}, {}};
  if (kind == Job::Kind::kFinal) {
    const CandidateBinary* built = candidates_.binary(candidate);
    CHECK(built != nullptr, "a finalist has its binary");
    if (planted(PlantedBug::kSwapBinaries)) built = candidates_.binary(finalists_.front());
    job.recipe_json = recipe_to_json(built->recipe);
    job.binary = built->bytes;
  }
  return job;
}

void KernelFlight::describe(Job& job, double calibration) const {
  job.kernel_key = key_;
  job.target = target_;
  job.family = family_;
  job.workload_text = workload_text_;
  job.policy = policy_;
  job.seed = seed_of(key_);
  job.incumbent_us = candidates_.best_us() / calibration;
}

TuningRecord KernelFlight::accept(CandidateResult result, Job::Kind kind, const WorkerId& worker,
                                  const Target& device, double calibration) {
  const int index = result.index;
  CHECK(candidates_[index].leases > 0 || planted(PlantedBug::kTakeResultsTwice),
        "only a leased candidate has a result");
  candidates_.release(index);

  TuningRecord record;
  record.kernel_key = key_;
  record.workload = workload_;
  record.target = device;
  record.schedule = candidates_.schedule(index);
  record.worker = worker;
  record.seed = seed_of(key_);
  if (!result.binary.empty()) record.binary = Digest::of(result.binary);

  auto recipe =
      result.binary.empty() ? Result<Recipe>(Recipe{}) : recipe_from_json(result.recipe_json);
  if (const char* fault = fault_of(result, kind, recipe.has_value()); fault != nullptr) {
    result.verdict = Verdict::kDeviceLost;
    result.log = fault;
  }
  if (result.verdict == Verdict::kOk) record.measurement = result.measurement;
  record.verdict = result.verdict;
  record.log = result.log = bounded(std::move(result.log));

  if (result.verdict == Verdict::kOk) {
    if (kind == Job::Kind::kFinal) {
      for (double& us : result.measurement.samples_us) us *= calibration;
      raced_[index] = std::move(result.measurement);
    } else {
      keep(std::move(result), kind, *std::move(recipe), device, calibration);
    }
  } else if (failure_class(result.verdict) == FailureClass::kTerminal &&
             !planted(PlantedBug::kRetryTerminal)) {
    reject(index, result.verdict, std::move(result.log));
  } else if (kind == Job::Kind::kFinal) {
    ++finals_cut_short_;
    ++retries_;
  } else {
    CandidateTrouble& trouble = candidates_.trouble(index);
    trouble.runner_deaths += result.verdict == Verdict::kRunnerDied;
    failed_transiently(index, worker, result.verdict, std::move(result.log));
  }
  return record;
}

void KernelFlight::keep(CandidateResult result, Job::Kind kind, Recipe recipe, const Target& device,
                        double calibration) {
  candidates_.no_trouble(result.index);
  if (kind == Job::Kind::kScreen)
    candidates_.measured(result.index, result.measurement.median_us() * calibration);
  if (result.binary.empty()) return;
  candidates_.keep_binary(result.index, {std::move(recipe), std::move(result.binary), device});
  // Only the best `finalists` medians can reach the finals.
  if (kind == Job::Kind::kScreen)
    candidates_.keep_best_binaries(static_cast<size_t>(std::max(1, policy_.finalists)));
}

bool KernelFlight::is_settled(int candidate, Job::Kind kind) const {
  const CandidateState& c = candidates_[candidate];
  if (c.rejected) return true;
  return kind == Job::Kind::kScreen ? c.measured : has_binary(candidate);
}

void KernelFlight::give_back(const std::vector<int>& candidates, Job::Kind kind,
                             const WorkerId& worker, bool blamed, uint64_t new_epoch) {
  epoch_ = new_epoch;
  if (kind == Job::Kind::kFinal && blamed) {
    ++finals_cut_short_;
    ++retries_;
  }
  for (int index : candidates) {
    candidates_.release(index);
    if (kind == Job::Kind::kFinal || candidates_[index].leases > 0) continue;
    if (blamed)
      failed_transiently(index, worker, Verdict::kRunnerDied,
                         "its worker went away or made no progress");
    else if (!candidates_[index].settled())
      candidates_.want(index);
  }
}

void KernelFlight::recall(uint64_t new_epoch) {
  epoch_ = new_epoch;
  candidates_.recall();
  screening_queued_ = false;
}

void KernelFlight::failed_transiently(int candidate, const WorkerId& worker, Verdict verdict,
                                      std::string log) {
  CandidateTrouble& trouble = candidates_.trouble(candidate);
  trouble.avoid = worker;
  ++trouble.failures;
  const bool hopeless =
      trouble.failures > max_retries_ || trouble.runner_deaths >= max_runner_deaths_;
  kills_runners_ = kills_runners_ || trouble.runner_deaths >= max_runner_deaths_;
  if (hopeless && !planted(PlantedBug::kRetryForever)) {
    ++set_aside_;
    return reject(candidate, verdict, std::move(log));
  }
  ++retries_;
  if (!candidates_[candidate].settled()) candidates_.want(candidate);
}

void KernelFlight::reject(int candidate, Verdict verdict, std::string log) {
  candidates_.reject(candidate, verdict);
  if (candidate == 0) first_log_ = bounded(std::move(log));
}

void KernelFlight::win(int candidate) {
  const CandidateBinary& built = *candidates_.binary(candidate);
  winner_index_ = candidate;
  winner_.workload = workload_;
  winner_.key = key_;
  winner_.family = to_string(family_);
  winner_.schedule = candidates_.schedule(candidate).to_string();
  winner_.blob = Digest::of(built.bytes);
  winner_.recipe = built.recipe;
  winner_.report = report();
  stage_ = Stage::kStoring;
}

KernelReport KernelFlight::report() const {
  const auto median = [this](int i) {
    const auto raced = raced_.find(i);
    return raced == raced_.end() ? candidates_[i].screened_us : raced->second.median_us();
  };
  KernelReport report;
  for (int i = 0; i < candidates_.size(); ++i) {
    report.measured += candidates_[i].screened_us > 0;
    report.rejected += candidates_[i].rejected;
    report.candidates += candidates_[i].settled();
  }
  if (mode_ == Mode::kDefault) {
    report.candidates = report.rejected + 1;
  } else {
    report.best_us = median(winner_index_);
    report.first_us = median(0);
  }
  return report;
}

std::optional<StoreKernel> KernelFlight::take_winner(
    const std::function<double(const Target&)>& scale_of) {
  if (stage_ != Stage::kStoring || winner_taken_) return std::nullopt;
  winner_taken_ = true;
  CandidateBinary& built = *candidates_.binary(winner_index_);
  if (mode_ != Mode::kDefault) winner_.report.sentinel_us = scale_of(built.device);
  StoreKernel store{winner_, built.device, std::move(built.bytes)};
  candidates_.drop_binaries();
  return store;
}

void KernelFlight::set_stored(bool stored) {
  if (stage_ != Stage::kStoring) return;
  stored_ = stored;
  stage_ = Stage::kDone;
}

void KernelFlight::fail(Error error) {
  error_ = std::move(error);
  stage_ = Stage::kFailed;
  candidates_.recall();
}

// ---- Who needs it ----

void KernelFlight::set_demand(const Digest& program, Demand demand) {
  programs_[program] = std::move(demand);
  sum_demand();
}

bool KernelFlight::remove_demand(const Digest& program) {
  if (programs_.erase(program) == 0) return false;
  sum_demand();
  return true;
}

void KernelFlight::sum_demand() {
  demand_.clear();
  for (const auto& [program, demand] : programs_)
    for (const auto& [share, priority] : demand) add_demand(demand_, share, priority);
}

// The verdicts counted, and the log of the first guess: it is the one most likely to be mended.
Error KernelFlight::no_survivor() const {
  std::string verdicts;
  // Nothing but lost workers and devices, and a runner's death now and then: not their fault.
  bool fleet = !kills_runners_;
  for (Verdict verdict : {Verdict::kCompileFailed, Verdict::kWrongResult, Verdict::kOutOfBounds,
                          Verdict::kTimedOut, Verdict::kRunnerDied, Verdict::kDeviceLost}) {
    int n = 0;
    for (int i = 0; i < candidates_.size(); ++i)
      n += candidates_[i].rejected && candidates_[i].verdict == verdict;
    if (n == 0) continue;
    fleet = fleet && failure_class(verdict) == FailureClass::kTransient;
    verdicts += fmt::format("{}{} {}", verdicts.empty() ? "" : ", ", n, to_string(verdict));
  }
  if (verdicts.empty()) {
    fleet = false;
    verdicts = candidates_.size() == 0 ? "its search space is empty" : "none could be timed";
  }
  std::string message =
      fmt::format("no candidate of the {} kernel {} survived on {}: {}", to_string(family_),
                  key_.short_hex(), target_.to_string(), verdicts);
  if (!first_log_.empty()) message += "\n" + first_log_;
  // A custom kernel that does not compile or compute what it says is its author's to mend.
  const Code code = fleet                        ? Code::kUnavailable
                    : family_ == Family::kCustom ? Code::kInvalidArgument
                                                 : Code::kInternal;
  return Error{code, std::move(message), 0};
}

}  // namespace kiln
