#include "worker/jobs/trial.h"

#include <algorithm>
#include <chrono>

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kOpenQuietMs = 600'000;  // the reference of a large workload takes minutes
constexpr int64_t kSlackMs = 1000;         // beside a launch: loading, filling, comparing

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void judge(Trial& trial, const Error& error) {
  trial.verdict = error.code == Code::kDeadlineExceeded ? Verdict::kTimedOut : Verdict::kRunnerDied;
  trial.log = error.message;
}

// The reply as a `T`, or what went wrong instead as an Error.
template <class T>
Result<T> ask(RunnerProcess& runner, const runner::Request& request, int64_t quiet_ms) {
  TRY(runner::Reply reply, runner.call(request, quiet_ms));
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
// Opens the job's workload. Comparing may take the time of a second reference (tolerance.h).
Result<OpenedJob> open(RunnerProcess& runner, const Job& job) {
  TRY(const auto opened,
      ask<runner::Opened>(runner, runner::OpenWorkload{job.seed, job.workload_text}, kOpenQuietMs));
  const double reference_ms = std::min<double>(opened.reference_ms, kOpenQuietMs);
  return OpenedJob{opened.open_ms, job.policy.launch_timeout_ms + runner::kProgressPeriodMs +
                                       kSlackMs + static_cast<int64_t>(2 * reference_ms)};
}

void verify(RunnerProcess& runner, const Artifact& artifact, uint64_t slot, int64_t quiet_ms,
            Trial& trial) {
  const auto start = Clock::now();
  auto verified = ask<runner::Verified>(
      runner,
      runner::VerifyKernel{slot, recipe_to_json(artifact.recipe), artifact.binary, artifact.digest},
      quiet_ms);
  trial.verify_ms = ms_since(start);
  if (!verified) return judge(trial, verified.error());
  trial.verdict = verified->verdict;
  trial.log = std::move(verified->log);
}

// Verifies `members` and times the right ones. False when the runner went down while timing.
bool time_together(RunnerProcess& runner, const Job& job, std::span<const Artifact> artifacts,
                   std::span<const size_t> members, std::vector<Trial>& trials) {
  const int failures = runner.device_failures();
  const auto opened = open(runner, job);
  std::vector<uint64_t> slots;
  for (size_t i = 0; i < members.size(); ++i) {
    Trial& trial = trials[members[i]];
    if (!opened) {
      judge(trial, opened.error());
      if (device_failed(runner, failures)) trial.verdict = Verdict::kDeviceLost;
      continue;
    }
    trial.open_ms = i == 0 ? opened->ms : 0;
    verify(runner, artifacts[members[i]], i, opened->quiet_ms, trial);
    if (trial.verdict == Verdict::kOk) slots.push_back(i);
    if (runner.pid() == 0) return false;  // with the slots verified so far
  }
  if (slots.empty()) return true;
  const auto start = Clock::now();
  auto timed = ask<runner::FinalistsTimed>(runner, runner::TimeFinalists{slots, job.policy},
                                           opened->quiet_ms);
  if (timed && timed->measurements.size() != slots.size())
    timed = fail(Code::kUnavailable, "the runner answered for other finalists");
  for (size_t i = 0; i < slots.size(); ++i) {
    Trial& trial = trials[members[slots[i]]];
    trial.measure_ms = ms_since(start) / static_cast<double>(slots.size());
    if (!timed) {
      judge(trial, timed.error());
      continue;
    }
    trial.measurement = std::move(timed->measurements[i]);
    trial.log = timed->note;
  }
  return timed.has_value();
}

}  // namespace

Trial try_candidate(RunnerProcess& runner, const Job& job, const Artifact& artifact,
                    double incumbent_us) {
  Trial trial;
  const int failures = runner.device_failures();
  const auto opened = open(runner, job);
  if (!opened) {
    judge(trial, opened.error());
    if (device_failed(runner, failures)) trial.verdict = Verdict::kDeviceLost;
    return trial;
  }
  trial.open_ms = opened->ms;
  verify(runner, artifact, 0, opened->quiet_ms, trial);
  if (trial.verdict != Verdict::kOk || job.kind == Job::Kind::kCompile) return trial;
  const auto start = Clock::now();
  auto raced =
      ask<runner::Raced>(runner, runner::RaceKernel{0, job.policy, incumbent_us}, opened->quiet_ms);
  trial.measure_ms = ms_since(start);
  if (!raced) {
    judge(trial, raced.error());
    return trial;
  }
  trial.dropped = raced->dropped;
  trial.log = std::move(raced->note);
  trial.measurement = std::move(raced->measurement);
  return trial;
}

std::vector<Trial> try_finalists(RunnerProcess& runner, const Job& job,
                                 std::span<const Artifact> artifacts) {
  std::vector<Trial> trials(artifacts.size());
  std::vector<size_t> all(artifacts.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  if (time_together(runner, job, artifacts, all, trials) || all.size() < 2) return trials;
  for (const size_t member : all) {
    trials[member] = {};
    time_together(runner, job, artifacts, {&member, 1}, trials);
  }
  return trials;
}

}  // namespace kiln
