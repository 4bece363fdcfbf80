// DeviceBench: how long a verified kernel takes on a GPU, on random data and on the device's clock.
//
// A sample is one CUDA graph of as many launches as last some 200 microseconds (one launch of a
// kernel that takes longer than 100), between two events. Launches rotate over copies of inputs and
// outputs whose total exceeds 3 times the L2, so that each finds its data in memory. A copy of some
// tens of megabytes runs right before the first event: the device is at work and its clock up while
// the host hands over the graph, and no gap is counted. Samples during which the card slowed itself
// down are taken again. One thread.
#pragma once

#include <optional>

#include "compiler_core/runtime/cuda_graph.h"
#include "compiler_core/runtime/cuda_kernel.h"
#include "worker/runner/cuda/device_case.h"
#include "worker/runner/timing.h"

namespace kiln::runner {

inline constexpr double kDeviceRaceBudgetUs = 30e3;    // a candidate
inline constexpr double kDeviceFinalBudgetUs = 150e3;  // all finalists

// A copy in memory that takes the same time whenever the card is in the same state: a yardstick for
// drift, and what runs before every sample. Movable.
class CalibrationKernel {
 public:
  static Result<CalibrationKernel> make(UtilityKernels& utility);
  Status launch() const;
  Result<double> time_us() const;  // the least of some

 private:
  explicit CalibrationKernel(UtilityKernels& utility) : utility_(&utility) {}
  UtilityKernels* utility_;
  int64_t bytes_ = 0;  // copied
  PooledMemory memory_;
  std::optional<CudaEvent> begin_, end_;
};

// The copies, shared by all candidates of a workload.
class DeviceCopies {
 public:
  static Result<DeviceCopies> make(UtilityKernels& utility, const DeviceCase& workload);
  // Arguments of a launch, the next copy each time.
  std::span<const DevicePtr> next();
  size_t count() const { return sets_.size(); }

 private:
  DeviceCopies() = default;
  PooledMemory memory_;
  std::vector<std::vector<DevicePtr>> sets_;
  size_t next_ = 0;
};

class DeviceTimer : public TimedKernel {
 public:
  // The rest outlives it. kUnavailable: no memory for its workspace.
  static Result<std::unique_ptr<DeviceTimer>> make(const CudaKernel& kernel,
                                                   UtilityKernels& utility,
                                                   const CalibrationKernel& calibration,
                                                   DeviceCopies& copies,
                                                   std::span<const int64_t> symbols);
  Status warm_up(const Alive& alive) override;
  Result<double> sample_us(const Alive& alive) override;
  int launches_per_sample() const { return launches_; }
  int dropped_samples() const { return dropped_; }  // since warm_up: the card was slowing itself

 private:
  DeviceTimer(const CudaKernel& kernel, UtilityKernels& utility,
              const CalibrationKernel& calibration, DeviceCopies& copies,
              std::span<const int64_t> symbols, CudaEvent begin, CudaEvent end);
  Status launch_all(CudaStream stream);  // launches_ of them, over the copies
  Result<double> timed_us(bool as_graph);
  bool is_throttled();

  const CudaKernel& kernel_;
  UtilityKernels& utility_;
  const CalibrationKernel& calibration_;
  DeviceCopies& copies_;
  std::span<const int64_t> symbols_;
  CudaEvent begin_, end_;
  PooledMemory workspace_;
  DevicePtr workspace_data_ = 0;
  std::optional<CudaGraph> graph_;
  int launches_ = 1;
  int warm_mhz_ = 0;  // 0: not known
  int64_t clocks_read_at_us_ = 0;
  int dropped_ = 0;
};

// race() and time_finalists() between two runs of the calibration kernel: when its time drifted,
// they measure once more. The note says so, and how many samples were dropped.
Result<Raced> race_on_device(DeviceTimer& timer, const CalibrationKernel& calibration,
                             const MeasurementPolicy& policy, double incumbent_us,
                             const Alive& alive);
Result<FinalistsTimed> time_finalists_on_device(std::span<DeviceTimer* const> timers,
                                                const CalibrationKernel& calibration,
                                                const MeasurementPolicy& policy,
                                                const Alive& alive);

}  // namespace kiln::runner
