#include "worker/jobs/evaluation.h"

#include <algorithm>
#include <chrono>

#include "compiler_core/base/clock.h"
#include "compiler_core/program/offered_kernel.h"
#include "worker/jobs/confirmation.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kOpenQuietMs = 600'000;  // the reference of a large workload takes minutes
constexpr int64_t kSlackMs = 1000;         // beside a launch: loading, filling, comparing
constexpr int64_t kVerifySteps = 8;        // two launches, each filled, guarded and compared

void judge(Evaluation& evaluation, const Error& error) {
  evaluation.verdict =
      error.code == Code::kDeadlineExceeded ? Verdict::kTimedOut : Verdict::kRunnerDied;
  evaluation.log = error.message;
}

// The reply as a `T`, or what went wrong instead as an Error. `steps`: how often the runner may be
// quiet in all; 0: as often as it likes, since no kernel has been in it.
template <class T>
Result<T> ask(RunnerProcess& runner, const runner::Request& request, int64_t quiet_ms,
              int64_t steps = 0) {
  TRY(runner::Reply reply, runner.call(request, quiet_ms, steps * quiet_ms));
  if (auto* failed = std::get_if<runner::Failed>(&reply))
    return fail(Code::kUnavailable, "the runner cannot: " + failed->error.message);
  if (auto* wanted = std::get_if<T>(&reply)) return std::move(*wanted);
  runner.kill();
  return fail(Code::kUnavailable, "the runner answered another question");
}

// No runner could be prepared meanwhile: the device failed, and not the candidate.
bool device_failed(const RunnerProcess& runner, int failures_before) {
  return runner.device_failures() > failures_before;
}

struct OpenedJob {
  double ms = 0;
  int64_t quiet_ms = 0;  // the runner may be silent for so long
};
// Opens the job's workload. A user's own kernel finds a runner in which no other has been, also no
// other candidate of the same job: the one before may hang where it is unloaded, while the runner has
// the time of a reference. Comparing may take the time of a second one (tolerance.h).
Result<OpenedJob> open(RunnerProcess& runner, const Job& job, bool is_users) {
  if (is_users) runner.end();
  TRY(const auto opened,
      ask<runner::Opened>(runner, runner::OpenWorkload{job.seed, job.workload_text}, kOpenQuietMs));
  const double reference_ms = std::min<double>(opened.reference_ms, kOpenQuietMs);
  return OpenedJob{opened.open_ms, job.policy.launch_timeout_ms + runner::kProgressPeriodMs +
                                       kSlackMs + static_cast<int64_t>(2 * reference_ms)};
}

void verify(RunnerProcess& runner, const Artifact& artifact, uint64_t slot, int64_t quiet_ms,
            Evaluation& evaluation) {
  const auto start = Clock::now();
  auto verified = ask<runner::Verified>(
      runner,
      runner::VerifyKernel{slot, recipe_to_json(artifact.recipe), artifact.binary, artifact.digest},
      quiet_ms, kVerifySteps);
  evaluation.verify_ms = ms_since(start);
  if (!verified) return judge(evaluation, verified.error());
  evaluation.verdict = verified->verdict;
  evaluation.log = std::move(verified->log);
}

// Verifies `members` and times the right ones. False when the runner went down while timing.
bool time_together(RunnerProcess& runner, const Job& job, std::span<const Artifact> artifacts,
                   std::span<const size_t> members, std::vector<Evaluation>& evaluations) {
  const int failures = runner.device_failures();
  const bool is_users = is_users_kernel(job, artifacts[members[0]]);  // which comes alone
  const auto opened = open(runner, job, is_users);
  std::vector<uint64_t> slots;
  for (size_t i = 0; i < members.size(); ++i) {
    Evaluation& evaluation = evaluations[members[i]];
    if (!opened) {
      judge(evaluation, opened.error());
      if (device_failed(runner, failures)) evaluation.verdict = Verdict::kDeviceLost;
      continue;
    }
    evaluation.open_ms = i == 0 ? opened->ms : 0;
    verify(runner, artifacts[members[i]], i, opened->quiet_ms, evaluation);
    if (evaluation.verdict == Verdict::kOk) slots.push_back(i);
    if (runner.pid() == 0) return false;  // with the slots verified so far
  }
  if (slots.empty()) return true;
  const auto start = Clock::now();
  const int64_t runs = kVerifySteps + std::ssize(slots) * job.policy.final_runs;
  auto timed = ask<runner::FinalistsTimed>(runner, runner::TimeFinalists{slots, job.policy},
                                           opened->quiet_ms, runs);
  if (timed && timed->measurements.size() != slots.size())
    timed = fail(Code::kUnavailable, "the runner answered for other finalists");
  for (size_t i = 0; i < slots.size(); ++i) {
    Evaluation& evaluation = evaluations[members[slots[i]]];
    evaluation.measure_ms = ms_since(start) / static_cast<double>(slots.size());
    if (!timed) {
      judge(evaluation, timed.error());
      continue;
    }
    evaluation.measurement = std::move(timed->measurements[i]);
    evaluation.log = timed->note;
  }
  return timed.has_value();
}

}  // namespace

namespace {

Evaluation evaluate_alone(RunnerProcess& runner, const Job& job, const Artifact& artifact,
                          double incumbent_us) {
  Evaluation evaluation;
  const int failures = runner.device_failures();
  const auto opened = open(runner, job, is_users_kernel(job, artifact));
  if (!opened) {
    judge(evaluation, opened.error());
    if (device_failed(runner, failures)) evaluation.verdict = Verdict::kDeviceLost;
    return evaluation;
  }
  evaluation.open_ms = opened->ms;
  verify(runner, artifact, 0, opened->quiet_ms, evaluation);
  if (evaluation.verdict != Verdict::kOk || job.kind == Job::Kind::kCompile) return evaluation;
  const auto start = Clock::now();
  const int64_t runs = kVerifySteps + job.policy.screen_runs + job.policy.race_runs;
  auto raced = ask<runner::Raced>(runner, runner::RaceKernel{0, job.policy, incumbent_us},
                                  opened->quiet_ms, runs);
  evaluation.measure_ms = ms_since(start);
  if (!raced) {
    judge(evaluation, raced.error());
    return evaluation;
  }
  evaluation.dropped = raced->dropped;
  evaluation.log = std::move(raced->note);
  evaluation.measurement = std::move(raced->measurement);
  return evaluation;
}

std::vector<Evaluation> evaluate_together(RunnerProcess& runner, const Job& job,
                                          std::span<const Artifact> artifacts) {
  std::vector<Evaluation> evaluations(artifacts.size());
  std::vector<size_t> all(artifacts.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  const auto is_users = [&](const Artifact& each) { return is_users_kernel(job, each); };
  const bool may_be_together = all.size() < 2 || std::ranges::none_of(artifacts, is_users);
  if (may_be_together &&
      (time_together(runner, job, artifacts, all, evaluations) || all.size() < 2))
    return evaluations;
  for (const size_t member : all) {
    evaluations[member] = {};
    time_together(runner, job, artifacts, {&member, 1}, evaluations);
    if (is_users(artifacts[member])) runner.end();  // whatever it left there
  }
  return evaluations;
}

}  // namespace

bool is_users_kernel(const Job& job, const Artifact& artifact) {
  return job.family == Family::kCustom ||
         std::ranges::any_of(job.candidates, [&](const CandidateJob& each) {
           return is_offered(each.schedule.template_name) && each.binary == artifact.binary;
         });
}

Evaluation evaluate_candidate(RunnerProcess& runner, const Job& job, const Artifact& artifact,
                              double incumbent_us) {
  Evaluation evaluation = evaluate_alone(runner, job, artifact, incumbent_us);
  if (evaluation.verdict == Verdict::kOk && needs_confirmation(runner, job, artifact))
    confirm(runner, job, artifact, evaluation);
  if (is_users_kernel(job, artifact)) runner.end();  // whatever it left there
  return evaluation;
}

std::vector<Evaluation> evaluate_finalists(RunnerProcess& runner, const Job& job,
                                           std::span<const Artifact> artifacts) {
  std::vector<Evaluation> evaluations = evaluate_together(runner, job, artifacts);
  for (size_t i = 0; i < artifacts.size(); ++i)
    if (evaluations[i].verdict == Verdict::kOk && needs_confirmation(runner, job, artifacts[i]))
      confirm(runner, job, artifacts[i], evaluations[i]);
  return evaluations;
}

}  // namespace kiln
