#include "coordinator/core/kernel_flight.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "compiler_core/base/check.h"
#include "compiler_core/tune/race.h"

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
      epoch_(epoch) {
  candidates_.resize(planned.schedules.size());
  for (size_t i = 0; i < candidates_.size(); ++i)
    candidates_[i].schedule = std::move(planned.schedules[i]);
  resume(planned.records);
}

// What earlier lives of the flight measured. The first measurement of a schedule is its screening,
// a later one its final. Transient failures are not remembered: they may have gone away.
void KernelFlight::resume(const std::vector<TuningRecord>& records) {
  for (const TuningRecord& record : records) {
    if (!is_terminal(record.verdict)) continue;
    const auto found = std::find_if(candidates_.begin(), candidates_.end(),
                                    [&](const auto& c) { return c.schedule == record.schedule; });
    if (found == candidates_.end() || found->rejected) continue;
    if (record.verdict != Verdict::kOk) {
      reject(static_cast<int>(found - candidates_.begin()), record.verdict, record.log);
    } else if (!record.measurement.samples_us.empty() && plausible(record.measurement)) {
      (found->measured ? found->raced : found->screened) = record.measurement;
      found->measured = true;
    }
  }
}

int KernelFlight::settled() const {
  return static_cast<int>(std::count_if(candidates_.begin(), candidates_.end(),
                                        [](const auto& c) { return c.measured || c.rejected; }));
}

double KernelFlight::incumbent_us() const {
  double best = 0;
  for (const Candidate& c : candidates_) {
    const double us = c.screened.median_us();
    if (!c.rejected && us > 0 && (best == 0 || us < best)) best = us;
  }
  return best;
}

void KernelFlight::advance() {
  if (stage_ >= Stage::kStoring) return;
  if (mode_ == Mode::kDefault)
    advance_default();
  else
    advance_autotune();
}

void KernelFlight::advance_default() {
  const auto first = std::find_if(candidates_.begin(), candidates_.end(),
                                  [](const auto& c) { return !c.rejected; });
  if (first == candidates_.end()) return fail(no_survivor());
  const int index = static_cast<int>(first - candidates_.begin());
  if (first->binary.empty())
    want(index);
  else
    win(index);
}

void KernelFlight::advance_autotune() {
  bool open = false;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (candidates_[i].measured || candidates_[i].rejected) continue;
    want(static_cast<int>(i));
    open = true;
  }
  if (open) return;

  std::erase_if(finalists_, [&](int i) { return candidates_[i].rejected; });
  if (finalists_.empty()) {
    std::vector<double> medians;
    for (const Candidate& c : candidates_)
      medians.push_back(c.rejected ? 0 : c.screened.median_us());
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
    for (int i : finalists_) raced.push_back(candidates_[i].raced);
    winner = finalists_[rank(policy_, raced, 0).front()];
  }
  if (winner >= 0 && !candidates_[winner].binary.empty()) return win(winner);

  stage_ = Stage::kRebuilding;
  if (winner >= 0) return want(winner);
  bool missing = false;
  for (int i : finalists_) {
    if (!candidates_[i].binary.empty()) continue;
    want(i);
    missing = true;
  }
  if (!missing) queue_finals();
}

bool KernelFlight::all_raced() const {
  return std::all_of(finalists_.begin(), finalists_.end(),
                     [&](int i) { return !candidates_[i].raced.samples_us.empty(); });
}

// Whole or not at all, and not while a part of an earlier run is still out.
void KernelFlight::queue_finals() {
  stage_ = Stage::kFinals;
  for (int i : finalists_)
    if (candidates_[i].work != Candidate::Work::kNone) return;
  for (int i : finalists_) {
    candidates_[i].raced = {};
    want(i);
  }
}

void KernelFlight::want(int candidate) {
  Candidate& c = candidates_[candidate];
  if (c.work != Candidate::Work::kNone) return;
  c.work = Candidate::Work::kQueued;
  queue_.push_back(candidate);
}

KernelFlight::Batch KernelFlight::take(const WorkerId& worker, int limit, bool others) {
  Batch batch;
  const bool finals = stage_ == Stage::kFinals;
  batch.kind = finals ? Job::Kind::kFinal : Job::Kind::kScreen;
  if (stage_ == Stage::kRebuilding || mode_ == Mode::kDefault) batch.kind = Job::Kind::kCompile;
  if (finals) limit = static_cast<int>(queue_.size());
  for (auto it = queue_.begin(); it != queue_.end() && std::ssize(batch.candidates) < limit;) {
    Candidate& c = candidates_[*it];
    const bool retried = c.attempts > 0 && !finals;
    if (retried && ((others && c.avoid == worker) || !batch.candidates.empty())) {
      ++it;
      continue;
    }
    c.work = Candidate::Work::kLeased;
    batch.candidates.push_back(*it);
    it = queue_.erase(it);
    if (retried) break;
  }
  return batch;
}

CandidateJob KernelFlight::job(int candidate, Job::Kind kind) const {
  const Candidate& c = candidates_[candidate];
  CandidateJob job{candidate, c.schedule, {}, {}};
  if (kind == Job::Kind::kFinal) {
    job.recipe_json = recipe_to_json(c.recipe);
    job.binary = c.binary;
  }
  return job;
}

void KernelFlight::describe(Job& job) const {
  job.kernel_key = key_;
  job.target = target_;
  job.family = family_;
  job.workload_text = workload_text_;
  job.policy = policy_;
  job.seed = seed_of(key_);
  job.incumbent_us = incumbent_us();
}

TuningRecord KernelFlight::accept(CandidateResult result, Job::Kind kind, const WorkerId& worker,
                                  const Target& device) {
  const int index = result.index;
  Candidate& c = candidates_[index];
  CHECK(c.work == Candidate::Work::kLeased, "only a leased candidate has a result");
  c.work = Candidate::Work::kNone;

  TuningRecord record;
  record.kernel_key = key_;
  record.workload = workload_;
  record.target = device;
  record.schedule = c.schedule;
  record.worker = worker;
  record.seed = seed_of(key_);
  if (!result.binary.empty()) record.binary = Digest::of(result.binary);

  auto recipe =
      result.binary.empty() ? Result<Recipe>(Recipe{}) : recipe_from_json(result.recipe_json);
  if (const char* fault = fault_of(result, kind, recipe.has_value()); fault != nullptr) {
    result.verdict = Verdict::kRunnerDied;
    result.log = fault;
  }
  if (result.verdict == Verdict::kOk) record.measurement = result.measurement;
  record.verdict = result.verdict;
  record.log = result.log = bounded(std::move(result.log));

  if (result.verdict == Verdict::kOk) {
    if (kind == Job::Kind::kFinal)
      c.raced = std::move(result.measurement);
    else
      keep(c, std::move(result), kind, *std::move(recipe), device);
  } else if (is_terminal(result.verdict)) {
    reject(index, result.verdict, std::move(result.log));
  } else if (kind == Job::Kind::kFinal) {
    ++finals_cut_short_;
    ++retries_;
  } else {
    retry_or_reject(index, worker, result.verdict, std::move(result.log));
  }
  return record;
}

void KernelFlight::keep(Candidate& c, CandidateResult result, Job::Kind kind, Recipe recipe,
                        const Target& device) {
  c.attempts = 0;
  if (kind == Job::Kind::kScreen) {
    c.screened = std::move(result.measurement);
    c.measured = true;
  }
  if (result.binary.empty()) return;
  c.recipe = std::move(recipe);
  c.binary = std::move(result.binary);
  c.device = device;
  if (kind == Job::Kind::kScreen) drop_spare_binaries();
}

void KernelFlight::give_back(const std::vector<int>& candidates, Job::Kind kind,
                             const WorkerId& worker, uint64_t new_epoch) {
  epoch_ = new_epoch;
  if (kind == Job::Kind::kFinal) {
    ++finals_cut_short_;
    ++retries_;
  }
  for (int index : candidates) {
    candidates_[index].work = Candidate::Work::kNone;
    if (kind != Job::Kind::kFinal)
      retry_or_reject(index, worker, Verdict::kRunnerDied,
                      "its worker went away or made no progress");
  }
}

void KernelFlight::recall(uint64_t new_epoch) {
  epoch_ = new_epoch;
  queue_.clear();
  for (Candidate& c : candidates_) c.work = Candidate::Work::kNone;
}

void KernelFlight::retry_or_reject(int candidate, const WorkerId& worker, Verdict verdict,
                                   std::string log) {
  Candidate& c = candidates_[candidate];
  c.avoid = worker;
  if (++c.attempts > max_retries_)
    reject(candidate, verdict, std::move(log));
  else
    ++retries_;
}

void KernelFlight::reject(int candidate, Verdict verdict, std::string log) {
  Candidate& c = candidates_[candidate];
  c.rejected = true;
  c.verdict = verdict;
  c.log = bounded(std::move(log));
  c.binary.clear();
}

// Only the best `finalists` medians can reach the finals.
void KernelFlight::drop_spare_binaries() {
  std::vector<int> held;
  for (size_t i = 0; i < candidates_.size(); ++i)
    if (!candidates_[i].binary.empty()) held.push_back(static_cast<int>(i));
  const auto keep = static_cast<size_t>(std::max(1, policy_.finalists));
  if (held.size() <= keep) return;
  const auto median = [&](int i) {
    const double us = candidates_[i].screened.median_us();
    return us > 0 ? us : std::numeric_limits<double>::infinity();
  };
  std::stable_sort(held.begin(), held.end(), [&](int a, int b) { return median(a) < median(b); });
  for (size_t i = keep; i < held.size(); ++i) std::string().swap(candidates_[held[i]].binary);
}

void KernelFlight::win(int candidate) {
  const Candidate& c = candidates_[candidate];
  winner_index_ = candidate;
  winner_.workload = workload_;
  winner_.key = key_;
  winner_.family = to_string(family_);
  winner_.schedule = c.schedule.to_string();
  winner_.blob = Digest::of(c.binary);
  winner_.recipe = c.recipe;
  winner_.report = report();
  stage_ = Stage::kStoring;
}

KernelReport KernelFlight::report() const {
  const auto median = [](const Candidate& c) {
    return c.raced.samples_us.empty() ? c.screened.median_us() : c.raced.median_us();
  };
  KernelReport report;
  for (const Candidate& c : candidates_) {
    report.measured += !c.screened.samples_us.empty();
    report.rejected += c.rejected;
    report.candidates += c.measured || c.rejected;
  }
  if (mode_ == Mode::kDefault) {
    report.candidates = report.rejected + 1;
  } else {
    report.best_us = median(candidates_[winner_index_]);
    report.first_us = median(candidates_.front());
  }
  return report;
}

std::optional<StoreKernel> KernelFlight::take_winner() {
  if (stage_ != Stage::kStoring || winner_taken_) return std::nullopt;
  winner_taken_ = true;
  Candidate& c = candidates_[winner_index_];
  StoreKernel store{winner_, c.device, std::move(c.binary)};
  for (Candidate& other : candidates_) std::string().swap(other.binary);
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
  queue_.clear();
}

// The verdicts counted, and the log of the first guess: it is the one most likely to be mended.
Error KernelFlight::no_survivor() const {
  std::string verdicts;
  bool fleet = true;  // nothing but dead runners and lost devices: not the candidates' fault
  for (Verdict verdict : {Verdict::kCompileFailed, Verdict::kWrongResult, Verdict::kOutOfBounds,
                          Verdict::kTimedOut, Verdict::kRunnerDied, Verdict::kDeviceLost}) {
    const auto n = std::count_if(candidates_.begin(), candidates_.end(),
                                 [&](const auto& c) { return c.rejected && c.verdict == verdict; });
    if (n == 0) continue;
    fleet = fleet && !is_terminal(verdict);
    verdicts += fmt::format("{}{} {}", verdicts.empty() ? "" : ", ", n, to_string(verdict));
  }
  if (verdicts.empty()) {
    fleet = false;
    verdicts = candidates_.empty() ? "its search space is empty" : "none could be timed";
  }
  std::string message =
      fmt::format("no candidate of the {} kernel {} survived on {}: {}", to_string(family_),
                  key_.short_hex(), target_.to_string(), verdicts);
  if (!candidates_.empty() && !candidates_.front().log.empty())
    message += "\n" + candidates_.front().log;
  // A custom kernel that does not compile or compute what it says is its author's to mend.
  const Code code = fleet                        ? Code::kUnavailable
                    : family_ == Family::kCustom ? Code::kInvalidArgument
                                                 : Code::kInternal;
  return Error{code, std::move(message), 0};
}

}  // namespace kiln
