// Bench: how long a verified kernel takes on the CPU, on random data and on a steady clock.
//
// Launches rotate over copies of the buffers whose total exceeds 3 times the L2 of the cores used,
// so that a launch finds its data where the kernel before it in a real program would leave it at
// best: in L3. (The last level cannot be exceeded on every machine; it may have hundreds of
// megabytes.) A sample is the mean of as many launches as last 50 microseconds, so that reading the
// clock and waking the pool once do not count. One thread.
#pragma once

#include "compiler_core/runtime/kernel.h"
#include "worker/runner/cpu/guarded_buffer.h"
#include "worker/runner/cpu/verify.h"

namespace kiln::runner {

// The copies, shared by all candidates of a workload.
class RotatingBuffers {
 public:
  static Result<RotatingBuffers> make(const WorkloadCase& workload, int threads);
  // Arguments of a launch, the next copy each time.
  std::span<void* const> next();
  size_t copies() const { return sets_.size(); }

 private:
  explicit RotatingBuffers(GuardedBuffer memory) : memory_(std::move(memory)) {}
  GuardedBuffer memory_;
  std::vector<std::vector<void*>> sets_;
  size_t next_ = 0;
};

inline constexpr double kRaceBudgetUs = 3e6;    // a candidate
inline constexpr double kFinalBudgetUs = 10e6;  // all finalists

class KernelTimer : public TimedKernel {
 public:
  // `kernel`, `buffers`, `symbols` and `pool` outlive it. kUnavailable: no memory for its
  // workspace.
  static Result<KernelTimer> make(const Kernel& kernel, RotatingBuffers& buffers,
                                  std::span<const int64_t> symbols, ThreadPool& pool);
  Status warm_up(const Alive& alive) override;  // and finds how many launches a sample needs
  Result<double> sample_us(const Alive& alive) override;

 private:
  KernelTimer(const Kernel& kernel, RotatingBuffers& buffers, std::span<const int64_t> symbols,
              ThreadPool& pool, GuardedBuffer workspace);
  double launch_us(int launches);

  const Kernel& kernel_;
  RotatingBuffers& buffers_;
  std::span<const int64_t> symbols_;
  ThreadPool& pool_;
  GuardedBuffer workspace_;
  int launches_per_sample_ = 1;
};

}  // namespace kiln::runner
