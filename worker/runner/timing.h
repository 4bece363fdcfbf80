// Timing: racing and finals (tune/race.h) over whatever can be sampled, within a budget. What a
// sample is depends on the device: kernel_timer.h. One thread.
#pragma once

#include <functional>

#include "worker/runner/protocol.h"

namespace kiln::runner {

using Alive = std::function<void()>;  // called between launches: still working

// A verified kernel that can be launched again and again.
class TimedKernel {
 public:
  virtual ~TimedKernel() = default;
  // Prepares for samples, which must follow soon. Errors: the device is lost.
  virtual Status warm_up(const Alive& alive) = 0;
  // Microseconds a launch takes, over one sample. REQUIRES: warm_up was called.
  virtual Result<double> sample_us(const Alive& alive) = 0;
};

// Samples until next_step drops the kernel or calls it a finalist; once `budget_us` of wall time
// are spent it is decided with what there is, but never with less than policy.screen_runs samples.
Result<Raced> race(TimedKernel& timer, const MeasurementPolicy& policy, double incumbent_us,
                   double budget_us, const Alive& alive);

// Rounds of one sample of each until their order is clear, or the budget is spent.
Result<FinalistsTimed> time_finalists(std::span<TimedKernel* const> timers,
                                      const MeasurementPolicy& policy, double budget_us,
                                      const Alive& alive);

}  // namespace kiln::runner
