// CudaEvaluationDevice: an NVIDIA GPU as an EvaluationDevice, through kernels of the runner's own
// (kernels/).
//
// Guards are 64 KiB at least on each side, and more behind. What is written farther away faults, or
// damages something of the runner's, which is then noticed by its checksum.
#pragma once

#include <optional>

#include "compiler_core/runtime/cuda_graph.h"
#include "compiler_core/runtime/cuda_module.h"
#include "worker/runner/evaluation_device.h"

namespace kiln::runner {

class CudaEvaluationDevice : public EvaluationDevice {
 public:
  // `binary`: compiled from utility_kernels_source(). Errors of CudaModule::load.
  static Result<std::unique_ptr<CudaEvaluationDevice>> load(
      const std::shared_ptr<const CudaDevice>& device, std::string_view binary,
      const Digest& digest);
  ~CudaEvaluationDevice() override;

  Result<GuardedMemory> allocate_guarded(std::string name, int64_t bytes) override;
  Status repair_guards(const GuardedMemory& memory) override;
  Status draw(const InputDraw& draw, Floats floats, DevicePtr to) override;
  // Node by node with the kernels of kernels/reference.cuh. Slow, obvious, deterministic; shares
  // nothing with the code generator. Values as interpret() would have them, but for the order of
  // sums and the last bits of elementary functions.
  Status evaluate(const Graph& graph, std::span<const int64_t> symbols, Precision precision,
                  std::span<const DevicePtr> inputs, std::span<const DevicePtr> outputs) override;
  Status check_guards(const GuardedMemory& memory) override;
  Status check_drawn(const InputDraw& draw, Floats floats, DevicePtr at) override;
  Status survey(DevicePtr data, DType dtype, int64_t count) override;
  Status checksum(DevicePtr data, DType dtype, int64_t count) override {
    return survey(data, dtype, count);
  }
  Status compare(const Comparison& comparison) override;
  Result<std::vector<Tally>> take() override;
  // A copy of some tens of megabytes runs right before the first event: the device is at work and
  // its clock up while the host hands over the work, and no gap is counted.
  Result<double> time_us(const std::function<Status(Stream)>& work) override;
  // Time of that copy, in us; it is the same whenever the card is in the same state.
  Result<double> calibration_us() override;

  // Puts `entry` on the stream with as many threads as `work` items deserve; `parameters` are the
  // entry's, without the number of threads, which is its last. Nothing happens for no work.
  Status launch(const char* entry, int64_t work, std::vector<int64_t> parameters);
  // The same for an entry that leaves a Tally a thread: these are folded into one.
  Status tally(const char* entry, int64_t work, std::vector<int64_t> parameters);

 private:
  CudaEvaluationDevice(CudaModule module, Stream stream);
  Status make_calibration();
  Status launch_calibration();
  int64_t blocks_for(int64_t work) const;
  Result<double> between_us(const std::function<Status(Stream)>& work);

  CudaModule module_;
  PooledMemory partial_, results_;
  size_t pending_ = 0;  // tallies since the last take()
  PooledMemory calibration_;
  int64_t calibration_bytes_ = 0;  // copied
  std::unique_ptr<Event> begin_, end_;
};

// A double or an address as a parameter.
int64_t parameter(double value);
inline int64_t parameter(DevicePtr value) {
  return static_cast<int64_t>(value);
}

}  // namespace kiln::runner
