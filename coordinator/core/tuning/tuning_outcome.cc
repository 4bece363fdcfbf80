// How a tuning task ends: with a winner and its report, or with what became of its candidates.
#include <fmt/core.h>

#include "coordinator/core/tuning/failures.h"
#include "coordinator/core/tuning/tuning_task.h"

namespace kiln {

void TuningTask::win(int candidate) {
  const CandidateBinary& built = *candidates_.binary(candidate);
  winner_index_ = candidate;
  winner_.workload = workload_;
  winner_.key = key_;
  winner_.family = to_string(family_);
  winner_.schedule = candidates_.schedule(candidate).to_string();
  winner_.blob = Digest::of(built.bytes);
  winner_.recipe = built.recipe;
  winner_.report = report();
  winner_.templates = templates_;
  std::erase_if(winner_.templates, [this](const auto& t) { return left_out_.contains(t.name); });
  stage_ = Stage::kStoring;
}

KernelReport TuningTask::report() const {
  const auto median = [this](int i) {
    const Measurement* raced = finals_.time_of(i);
    return raced == nullptr ? candidates_[i].screened_us : raced->median_us();
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

std::optional<StoreKernel> TuningTask::take_winner(
    const std::function<double(const Target&)>& scale_of) {
  if (stage_ != Stage::kStoring || winner_taken_) return std::nullopt;
  winner_taken_ = true;
  CandidateBinary& built = *candidates_.binary(winner_index_);
  if (mode_ != Mode::kDefault) winner_.report.sentinel_us = scale_of(built.device);
  StoreKernel store{winner_, built.device, std::move(built.bytes)};
  candidates_.drop_binaries();
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
  for (const std::string& name : left_out_)
    message += fmt::format("; no worker has {} {}", name, find_version(templates_, name));
  if (!first_log_.empty()) message += "\n" + first_log_;
  // A custom kernel that does not compile or compute what it says is its author's to mend.
  const Code code = fleet || left_out()          ? Code::kUnavailable
                    : family_ == Family::kCustom ? Code::kInvalidArgument
                                                 : Code::kInternal;
  return Error{code, std::move(message), 0};
}

}  // namespace kiln
