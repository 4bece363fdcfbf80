// KernelTimer: how long a verified kernel takes, on random data and on a steady clock.
//
// Launches rotate over copies of inputs and outputs whose total exceeds 3 times the cache
// (Device::cache_bytes), so that a launch finds its data where the kernel before it in a real
// program would leave it at best: a GPU's in memory, a CPU's in L3, which cannot be exceeded on
// every machine. A sample is the mean of as many launches as last Policy::sample_us, so that
// reading the clock and waking the device do not count; on a GPU these are one CUDA graph. Samples
// during which the device slowed itself down are taken again. One thread.
#pragma once

#include "worker/runner/prepared_workload.h"
#include "worker/runner/timing.h"

namespace kiln::runner {

// The copies, shared by all candidates of a workload.
class RotatingBuffers {
 public:
  static Result<RotatingBuffers> make(EvaluationDevice& device, const PreparedWorkload& workload);
  // Arguments of a launch, the next copy each time.
  std::span<const DevicePtr> next();
  size_t copies() const { return sets_.size(); }
  int64_t bytes() const { return memory_.bytes(); }  // of all

 private:
  RotatingBuffers() = default;
  PooledMemory memory_;
  std::vector<std::vector<DevicePtr>> sets_;
  size_t next_ = 0;
};

class KernelTimer : public TimedKernel {
 public:
  // The arguments outlive it. kUnavailable: no memory for its workspace.
  static Result<std::unique_ptr<KernelTimer>> make(const LoadedKernel& kernel,
                                                   EvaluationDevice& device,
                                                   RotatingBuffers& buffers,
                                                   std::span<const int64_t> symbols);
  Status warm_up(const Alive& alive) override;  // and finds how many launches a sample needs
  Result<double> sample_us(const Alive& alive) override;
  int launches_per_sample() const { return launches_; }
  int dropped_samples() const { return dropped_; }  // since warm_up: the device was slowing itself

 private:
  KernelTimer(const LoadedKernel& kernel, EvaluationDevice& device, RotatingBuffers& buffers,
              std::span<const int64_t> symbols)
      : kernel_(kernel), device_(device), buffers_(buffers), symbols_(symbols) {}
  Status launch_all(Stream stream);  // launches_ of them, over the copies
  Result<double> timed_us();         // a launch, over one sample
  bool is_throttled();

  const LoadedKernel& kernel_;
  EvaluationDevice& device_;
  RotatingBuffers& buffers_;
  std::span<const int64_t> symbols_;
  PooledMemory workspace_;
  std::unique_ptr<LaunchGraph> graph_;  // null: launched one by one
  int launches_ = 1;
  int warm_mhz_ = 0;  // 0: not known
  int64_t clocks_read_at_us_ = 0;
  int dropped_ = 0;
};

// race() and time_finalists() within the device's budget. Where the policy says so, the calibration
// kernel runs before and after: when its time drifted, they measure once more. The note says so,
// and how many samples were dropped.
Result<Raced> race_kernel(EvaluationDevice& device, KernelTimer& timer,
                          const MeasurementPolicy& policy, double incumbent_us, const Alive& alive);
Result<FinalistsTimed> time_kernels(EvaluationDevice& device, std::span<KernelTimer* const> timers,
                                    const MeasurementPolicy& policy, const Alive& alive);

}  // namespace kiln::runner
