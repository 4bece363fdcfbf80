// How a tuning task ends: with finalists, a winner and its report, or with what became of its
// candidates.
#include <fmt/core.h>

#include "compiler_core/tune/race.h"
#include "coordinator/core/tuning/failures.h"
#include "coordinator/core/tuning/tuning_task.h"

namespace kiln {
namespace {

// The records of 3,169 kernels of the zoo say: this leaves 60 % of the finalists, and winners are 0.03 %
// slower, 16 of 2,065 by more than 1 % (tests/gpu/LOG.md, "Tuning").
constexpr double kReachOfFinals = 1.05;

}  // namespace

// Leaves out finalists that are too far behind the first one, where one device timed both. Times of two
// devices are less comparable: a finalist that another device timed stays.
std::vector<size_t> TuningTask::within_reach(std::vector<size_t> finalists) const {
  if (finalists.empty()) return finalists;
  const int first = static_cast<int>(finalists.front());
  const auto by_whom = measured_by_.find(first);
  std::erase_if(finalists, [&](size_t i) {
    const auto found = measured_by_.find(static_cast<int>(i));
    const bool one_device = by_whom != measured_by_.end() && found != measured_by_.end() &&
                            found->second == by_whom->second;
    return one_device && candidates_[static_cast<int>(i)].screened_us >
                             kReachOfFinals * candidates_[first].screened_us;
  });
  return finalists;
}

// Where candidates that call a library are among the best, the best of the others race too, and
// stand first: the winner may need one beside it. Without any of them nothing can win.
std::vector<int> TuningTask::choose_finalists() const {
  std::vector<double> medians, own;
  for (int i = 0; i < candidates_.size(); ++i) {
    medians.push_back(candidates_[i].rejected ? 0 : candidates_[i].screened_us);
    own.push_back(is_library(i) ? 0 : medians.back());
  }
  const std::vector<size_t> best = within_reach(pick_finalists(policy_, medians));
  const std::vector<size_t> best_own = within_reach(pick_finalists(policy_, own));
  std::vector<int> finalists(best_own.begin(), best_own.end());
  if (finalists.empty()) return {};
  for (const size_t i : best)
    if (is_library(static_cast<int>(i))) finalists.push_back(static_cast<int>(i));
  return finalists;
}

std::map<std::string, std::string> TuningTask::waiting_libraries() const {
  std::map<std::string, std::string> waiting;
  if (libraries_.empty() || stage_ == Stage::kFinals) return waiting;
  for (const std::string& name : candidates_.queued_templates())
    if (const auto found = libraries_.find(name); found != libraries_.end()) waiting.insert(*found);
  return waiting;
}

std::vector<LibraryVersion> TuningTask::libraries_of_final() const {
  std::vector<LibraryVersion> called;
  if (libraries_.empty() || stage_ != Stage::kFinals) return called;
  for (const int i : finals_.finalists()) {
    const CandidateBinary* built = candidates_.binary(i);
    if (built == nullptr) continue;
    for (const Phase& phase : built->recipe.phases)
      if (phase.call) called.push_back({phase.call->library, phase.call->version});
  }
  return called;
}

// The cost model's own best guess.
int TuningTask::first_own() const {
  int first = 0;
  while (first + 1 < candidates_.size() && is_library(first)) ++first;
  return first;
}

double TuningTask::median_of(int candidate) const {
  const Measurement* raced = finals_.time_of(candidate);
  return raced == nullptr ? candidates_[candidate].screened_us : raced->median_us();
}

// The same as if the candidate had been in the winner's final: times taken at two moments compare
// only after what the machine did in between.
double TuningTask::median_beside_winner(int candidate) const {
  const double screened_us = candidates_[winner_index_].screened_us;
  if (finals_.time_of(candidate) != nullptr || finals_.time_of(winner_index_) == nullptr ||
      screened_us <= 0)
    return median_of(candidate);
  return candidates_[candidate].screened_us * median_of(winner_index_) / screened_us;
}

// With the version that was called, which the winner is for.
std::string TuningTask::schedule_text(int candidate) const {
  Schedule schedule = candidates_.schedule(candidate);
  for (const Phase& phase : candidates_.binary(candidate)->recipe.phases)
    if (phase.call) add_library_version(schedule, phase.call->version);
  return schedule.to_string();
}

// As it would win by itself, but for the report of a race.
ProgramKernel TuningTask::kernel_of(int candidate) const {
  const CandidateBinary& built = *candidates_.binary(candidate);
  ProgramKernel kernel;
  kernel.workload = workload_;
  kernel.key = key_;
  kernel.family = to_string(family_);
  kernel.schedule = schedule_text(candidate);
  kernel.blob = Digest::of(built.bytes);
  kernel.recipe = built.recipe;
  kernel.templates = templates_;
  // An offer that no worker can try counts as tried: the fleet may never have such a worker.
  std::erase_if(kernel.templates, [this](const auto& t) {
    return left_out_.contains(t.name) && !is_offered(t.name);
  });
  return kernel;
}

void TuningTask::win(int candidate) {
  winner_index_ = candidate;
  winner_ = kernel_of(candidate);
  if (fallback_index_ >= 0) {
    const CandidateBinary& own = *candidates_.binary(fallback_index_);
    winner_.blob = Digest::of(own.bytes);
    winner_.fallback = {schedule_text(fallback_index_), own.recipe, median_of(fallback_index_)};
  }
  winner_.report = report();
  winner_.provenance = provenance(fallback_index_ >= 0 ? fallback_index_ : candidate);
  stage_ = Stage::kStoring;
}

KernelReport TuningTask::report() const {
  KernelReport report;
  for (int i = 0; i < candidates_.size(); ++i) {
    report.measured += candidates_[i].screened_us > 0;
    report.rejected += candidates_[i].rejected && !candidates_[i].withdrawn;
    report.candidates += candidates_[i].settled() && !candidates_[i].withdrawn;
  }
  if (mode_ == Mode::kDefault) {
    report.candidates = report.rejected + 1;
  } else {
    report.best_us = median_of(winner_index_);
    report.first_us = median_beside_winner(first_own());
  }
  return report;
}

std::optional<StoreKernel> TuningTask::take_winner(
    const std::function<double(const Target&)>& scale_of) {
  if (stage_ != Stage::kStoring || winner_taken_) return std::nullopt;
  winner_taken_ = true;
  CandidateBinary& built =
      *candidates_.binary(fallback_index_ >= 0 ? fallback_index_ : winner_index_);
  if (mode_ != Mode::kDefault) winner_.report.sentinel_us = scale_of(built.device);
  StoreKernel store{winner_, built.device, std::move(built.bytes), workload_text_};
  candidates_.drop_binaries();
  others_.clear();
  return store;
}

void TuningTask::set_stored(bool stored) {
  if (stage_ != Stage::kStoring) return;
  stored_ = stored;
  stage_ = Stage::kDone;
}

void TuningTask::fail(Error error) {
  error_ = std::move(error);
  stage_ = Stage::kFailed;
  candidates_.recall();
}

// The verdicts counted, and the log of the first guess: it is the one most likely to be mended.
Error TuningTask::no_survivor() const {
  std::string verdicts;
  // Only lost workers and devices, and an occasional time-out or death: not the candidates' fault.
  bool fleet = !candidate_to_blame_;
  for (Verdict verdict : {Verdict::kCompileFailed, Verdict::kWrongResult, Verdict::kOutOfBounds,
                          Verdict::kTimedOut, Verdict::kRunnerDied, Verdict::kDeviceLost}) {
    int n = 0;
    for (int i = 0; i < candidates_.size(); ++i)
      n +=
          candidates_[i].rejected && !candidates_[i].withdrawn && candidates_[i].verdict == verdict;
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
  for (const std::string& name : left_out_)
    message += fmt::format("; no worker has {} {}", name, find_version(templates_, name));
  for (const std::string& why : disputes_) message += "; " + why;
  if (!first_log_.empty()) message += "\n" + first_log_;
  // A custom kernel that does not compile or compute what it says is its author's to mend.
  const Code code = fleet || left_out() || disputed_ ? Code::kUnavailable
                    : family_ == Family::kCustom     ? Code::kInvalidArgument
                                                     : Code::kInternal;
  return Error{code, std::move(message), 0};
}

}  // namespace kiln
