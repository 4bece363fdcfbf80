#include "worker/jobs/confirmation.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <thread>

#include "worker/jobs/launch_clock.h"

namespace kiln {
namespace {

constexpr int64_t kConfirmQuietMs = 600'000;  // the reference of a large workload takes minutes
constexpr double kTimedUs = 20'000;  // the launches that are timed, by the runner's own word
constexpr int kTries = 3;            // a machine with other work is slower now and then

// The reply as a `T`. kInternal: the runner says that it cannot.
template <class T>
Result<T> answer_of(RunnerProcess& runner, const runner::Request& request, int64_t quiet_ms,
                    int64_t most_ms = 0) {
  TRY(runner::Reply reply, runner.call(request, quiet_ms, most_ms));
  if (auto* failed = std::get_if<runner::Failed>(&reply)) return fail(std::move(failed->error));
  if (auto* wanted = std::get_if<T>(&reply)) return std::move(*wanted);
  runner.kill();
  return fail(Code::kUnavailable, "the runner answered another question");
}

// By the worker's own recipe, not by what a runner says.
bool fits_a_frame(const Recipe& recipe) {
  int64_t bytes = 0;
  for (const TensorSpec& output : recipe.outputs) {
    const auto elements = element_count(output, {});
    if (!elements || *elements > static_cast<int64_t>(runner::kMaxJudgedBytes)) return false;
    bytes += *elements * size_of(output.dtype);
  }
  return bytes <= static_cast<int64_t>(runner::kMaxJudgedBytes);
}

class Confirmer {
 public:
  Confirmer(RunnerProcess& runner, const Job& job, const Artifact& artifact)
      : runner_(runner), judge_(judging(runner.options())), job_(job), artifact_(artifact) {}

  // The verdict; errors are of the processes.
  Result<runner::Verified> confirm(double median_us) {
    TRY(const auto opened,
        answer_of<runner::Opened>(judge_, runner::OpenWorkload{seed_, job_.workload_text},
                                  kConfirmQuietMs));
    runner_.end();  // whatever the kernel left there
    quiet_ms_ = job_.policy.launch_timeout_ms + runner::kProgressPeriodMs + kSlackMs;
    TRY_STATUS(answer_of<runner::Opened>(
                   runner_, runner::OpenWorkload{seed_, job_.workload_text, true, opened.floats},
                   quiet_ms_)
                   .map([](const runner::Opened&) {}));
    const int asked = runner_.options().threads;
    threads_ = asked > 0 ? asked : static_cast<int>(std::thread::hardware_concurrency());
    clock_.emplace(runner_.pid());  // before the kernel is there
    TRY(runner::Verified verified, judge(1));
    if (verified.verdict != Verdict::kOk || median_us <= 0) return verified;
    return check_time(median_us);
  }

 private:
  static constexpr int64_t kSlackMs = 1000;

  static RunnerProcess::Options judging(RunnerProcess::Options options) {
    options.progressed = {};
    return options;
  }

  Result<runner::Verified> judge(uint64_t launches) {
    clock_->restart();
    TRY(runner::Launched launched,
        answer_of<runner::Launched>(
            runner_,
            runner::LaunchKernel{recipe_to_json(artifact_.recipe), artifact_.binary,
                                 artifact_.digest, launches},
            quiet_ms_, 2 * quiet_ms_));
    took_ = clock_->elapsed();
    return answer_of<runner::Verified>(judge_, runner::JudgeOutputs{std::move(launched.outputs)},
                                       kConfirmQuietMs);
  }

  Result<runner::Verified> check_time(double median_us) {
    const auto launches = static_cast<uint64_t>(std::clamp(
        std::ceil(kTimedUs / median_us), 1.0, static_cast<double>(runner::kMaxLaunches)));
    const double said_us = median_us * static_cast<double>(launches);
    for (int i = 0; i < kTries; ++i) {
      TRY(runner::Verified verified, judge(launches));
      if (verified.verdict != Verdict::kOk || !contradicts(took_, said_us, threads_))
        return verified;
    }
    return runner::Verified{
        Verdict::kWrongResult,
        fmt::format("its runner says {:.3f} us a launch, but {} launches took {:.0f} us on the "
                    "worker's clock, {:.0f} of them waiting for a core, and {:.0f} us of the cores",
                    median_us, launches, took_.wall_us, took_.waited_us, took_.cpu_us)};
  }

  RunnerProcess& runner_;
  RunnerProcess judge_;
  const Job& job_;
  const Artifact& artifact_;
  const uint64_t seed_ = (uint64_t{std::random_device()()} << 32) | std::random_device()();
  int64_t quiet_ms_ = 0;
  int threads_ = 1;
  std::optional<LaunchClock> clock_;
  LaunchCost took_;  // by the last launches
};

}  // namespace

bool needs_confirmation(const RunnerProcess& runner, const Job& job, const Artifact& artifact) {
  return is_users_kernel(job, artifact) && runner.options().kind == SandboxKind::kRunner &&
         fits_a_frame(artifact.recipe);
}

void confirm(RunnerProcess& runner, const Job& job, const Artifact& artifact,
             Evaluation& evaluation) {
  Confirmer confirmer(runner, job, artifact);
  const auto verified = confirmer.confirm(evaluation.measurement.median_us());
  if (verified && verified->verdict == Verdict::kOk) return;
  evaluation.measurement = {};
  if (verified) {
    evaluation.verdict = verified->verdict;
    evaluation.log = "not confirmed by another process: " + verified->log;
    return;
  }
  evaluation.verdict =
      verified.error().code == Code::kDeadlineExceeded ? Verdict::kTimedOut : Verdict::kRunnerDied;
  evaluation.log = "not confirmed: " + verified.error().message;
}

}  // namespace kiln
