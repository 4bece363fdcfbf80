// EvaluationDevice: a Device with everything that verifying and timing kernels needs besides:
// reusable memory, guards, random inputs, the reference, comparison, calibration. There is one for
// the CPU (cpu/) and one for NVIDIA GPUs (cuda/), where elements never leave the device.
//
// Everything is put on one stream and done in order; functions do not wait for the stream unless
// they say so. A check leaves a Tally, and take() hands out those since the last take(), in order.
// One thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compiler_core/ir/interpreter.h"
#include "compiler_core/runtime/device.h"
#include "worker/runner/memory_pool.h"
#include "worker/runner/random_inputs.h"

namespace kiln::runner {

// The result of a check over many elements. Device code writes it (cuda/kernels/utility.cuh).
struct Tally {
  int64_t count = 0;
  int64_t first = INT64_MAX;  // INT64_MAX: nowhere
  double sum = 0;
  uint64_t mix = 0;
};
static_assert(sizeof(Tally) == 32, "the device writes them");

// Memory for a kernel that is not trusted yet:
//
//   | guard: `before` bytes of pattern | data | guard: `behind` bytes of pattern |
//
// The pattern depends on the position, so that a kernel which stores one value everywhere cannot
// hide. The guard behind begins at the very next byte.
struct GuardedMemory {
  std::string name;    // "input 0", "output 1", "workspace"
  DevicePtr data = 0;  // 64-byte aligned at least
  int64_t bytes = 0;
  int64_t before = 0, behind = 0;
  std::shared_ptr<const void> owner;

  // Where the nearest overwritten byte is, counted from data: negative, or >= bytes. `tally`: of
  // check_guards.
  std::optional<int64_t> damage(const Tally& tally) const {
    if (tally.count == 0) return std::nullopt;
    return tally.first < before ? -1 - tally.first : bytes + tally.first - before;
  }
};

// Compares with a reference by the rule of tolerance.h.
struct Comparison {
  DevicePtr got = 0, want = 0;
  DevicePtr declared = 0;  // the graph's results as declared, to be lenient; 0: none
  DType dtype = DType::kF32;
  int64_t count = 0;
  double relative = 0;  // r
  double scale = 0;     // s
};

class EvaluationDevice {
 public:
  // Between two take(): four for each buffer of a kernel with as many arguments as an artifact may
  // have.
  static constexpr size_t kMaxTallies = 4 * 512;

  // How this device is used.
  struct Policy {
    size_t max_workloads = 0;                // kept open
    int64_t kept_bytes = 0;                  // by those, and of memory that is not in use
    int64_t reference_elements = INT64_MAX;  // of a value that the reference holds whole, mostly
    int64_t most_other_sizes = 0;  // bytes of a workload with symbols that is tried at costly sizes
    // Copies of the buffers that launches rotate over; their total exceeds 3 times the cache.
    int64_t alignment = 0;
    int64_t min_copies = 0, max_copies = 0;
    // Warming up ends after min_warm_ups launches at least and warm_up_us, or max_warm_ups.
    int min_warm_ups = 0, max_warm_ups = 0;
    double warm_up_us = 0;
    // A sample is as many launches as last sample_us, or one that takes longer than long_us.
    double sample_us = 0, long_us = 0;
    int max_launches = 0;
    double race_budget_us = 0;   // a candidate
    double final_budget_us = 0;  // all finalists
    double max_drift = 0;        // of the calibration kernel during a measurement; 0: not watched
  };

  EvaluationDevice(std::shared_ptr<const Device> device, Stream stream, const Policy& policy)
      : policy_(policy), device_(std::move(device)), stream_(stream), pool_(device_) {}
  EvaluationDevice(const EvaluationDevice&) = delete;
  virtual ~EvaluationDevice() = default;

  const Policy& policy() const { return policy_; }
  void set_reference_elements(int64_t most) { policy_.reference_elements = most; }
  const Device& device() const { return *device_; }
  Stream stream() const { return stream_; }
  MemoryPool& pool() { return pool_; }
  Status synchronize() const { return device_->synchronize(stream_); }

  // With its guards written. kUnavailable: no memory.
  virtual Result<GuardedMemory> allocate_guarded(std::string name, int64_t bytes) = 0;
  virtual Status repair_guards(const GuardedMemory& memory) = 0;
  virtual Status draw(const InputDraw& draw, Floats floats, DevicePtr to) = 0;
  // Evaluates `graph`, the oracle of everything here. `inputs` and `outputs` are dense tensors of
  // the graph's dtypes at the sizes that `symbols` give. kUnavailable: no memory for it.
  virtual Status evaluate(const Graph& graph, std::span<const int64_t> symbols, Precision precision,
                          std::span<const DevicePtr> inputs,
                          std::span<const DevicePtr> outputs) = 0;

  virtual Status check_guards(const GuardedMemory& memory) = 0;  // counts overwritten bytes
  // Counts the elements that are no longer what draw() made them.
  virtual Status check_drawn(const InputDraw& draw, Floats floats, DevicePtr at) = 0;
  // Counts the finite elements of a float tensor and sums their squares; `first` is the first NaN.
  virtual Status survey(DevicePtr data, DType dtype, int64_t count) = 0;
  // Leaves in `mix` a checksum of all elements and their places.
  virtual Status checksum(DevicePtr data, DType dtype, int64_t count) = 0;
  // Counts the wrong elements; the sum is how many of them are neighbours of what is expected.
  virtual Status compare(const Comparison& comparison) = 0;
  virtual Result<std::vector<Tally>> take() = 0;  // waits

  // Microseconds that `work` takes on the stream, with the device busy right before. Waits.
  virtual Result<double> time_us(const std::function<Status(Stream)>& work) = 0;
  // Microseconds that the device's own fixed kernel takes now, the least of a few runs: tells a
  // slower clock, or a slower card, from a slower candidate. Waits, some milliseconds.
  virtual Result<double> calibration_us() = 0;

 protected:
  Policy policy_;

 private:
  std::shared_ptr<const Device> device_;
  Stream stream_;
  MemoryPool pool_;
};

std::unique_ptr<EvaluationDevice> make_cpu_evaluation_device(int threads);

}  // namespace kiln::runner
