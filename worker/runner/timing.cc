#include "worker/runner/timing.h"

#include <chrono>

#include "compiler_core/base/clock.h"
#include "compiler_core/tune/race.h"

namespace kiln::runner {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

Result<Raced> race(TimedKernel& timer, const MeasurementPolicy& policy, double incumbent_us,
                   double budget_us, const Alive& alive) {
  TRY_STATUS(timer.warm_up(alive));
  const auto start = Clock::now();
  MeasurementPolicy affordable = policy;
  Raced raced;
  std::vector<double>& samples = raced.measurement.samples_us;
  for (;;) {
    const RaceStep step = next_step(affordable, incumbent_us, samples);
    if (step.kind == RaceStep::Kind::kDrop) raced.dropped = true;
    if (step.kind != RaceStep::Kind::kRunMore) return raced;
    for (int run = 0; run < step.runs; ++run) {
      TRY(const double sample, timer.sample_us(alive));
      samples.push_back(sample);
      const int taken = static_cast<int>(samples.size());
      if (us_since(start) < budget_us || taken < policy.screen_runs) continue;
      affordable.race_runs = taken;  // decide with what there is
      break;
    }
  }
}

Result<FinalistsTimed> time_finalists(std::span<TimedKernel* const> timers,
                                      const MeasurementPolicy& policy, double budget_us,
                                      const Alive& alive) {
  for (TimedKernel* timer : timers) TRY_STATUS(timer->warm_up(alive));
  const auto start = Clock::now();
  FinalistsTimed timed;
  timed.measurements.resize(timers.size());
  for (int round = 0; round < policy.final_runs; ++round) {
    const bool enough = round >= policy.screen_runs;
    if (enough && finals_decided(policy, timed.measurements)) break;
    if (enough && us_since(start) > budget_us) break;
    for (size_t i = 0; i < timers.size(); ++i) {
      TRY(const double sample, timers[i]->sample_us(alive));
      timed.measurements[i].samples_us.push_back(sample);
    }
  }
  return timed;
}

}  // namespace kiln::runner
