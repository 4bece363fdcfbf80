// KernelEvaluator: what kiln-runner does in the role `bench`: verifies and times kernels on one
// device, the CPU of this machine or a GPU. One workload is open at a time; slots hold the kernels
// that were verified for it.
//
//   open ──> a workload is current; its slots are empty
//   verify ─> a slot holds a kernel that gave the right result (else the slot is empty)
//   race, time finalists: of verified slots
//
// Recently used workloads are kept, since their references cost more than anything else here. One
// thread.
#pragma once

#include <list>
#include <map>
#include <optional>

#include "worker/runner/kernel_timer.h"
#include "worker/runner/verify.h"

namespace kiln::runner {

class KernelEvaluator {
 public:
  // The CPU; a launch uses `threads`, 0: one per core.
  explicit KernelEvaluator(int threads) : device_(make_cpu_evaluation_device(threads)) {}
  // A GPU by its number. Nothing is opened before PrepareDevice. The libraries as for
  // CudaDevice::open.
  KernelEvaluator(int ordinal, std::string libcuda, std::string libcublaslt = {})
      : ordinal_(ordinal), libcuda_(std::move(libcuda)), libcublaslt_(std::move(libcublaslt)) {}

  // A request that cannot be served is Failed; a bad kernel is a verdict, if it leaves us alive.
  Reply handle(const Request& request, const Alive& alive);
  // The device answers no more in this process: the reply at hand must be the last.
  bool is_lost() const { return device_ && device_->device().is_lost(); }

 private:
  struct OpenCase {
    Digest key;
    PreparedWorkload workload;
    double reference_ms = 0;
    std::optional<RotatingBuffers> buffers;  // made for the first timing
  };
  struct Slot {
    std::unique_ptr<const LoadedKernel> kernel;
    std::unique_ptr<KernelTimer> timer;  // made for the first timing
  };

  Result<Reply> serve(const PrepareDevice& request, const Alive& alive);
  Result<Reply> serve(const OpenWorkload& request, const Alive& alive);
  Result<Reply> serve(const VerifyKernel& request, const Alive& alive);
  Result<Reply> serve(const LaunchKernel& request, const Alive& alive);
  Result<Reply> serve(const JudgeOutputs& request, const Alive& alive);
  Result<Reply> serve(const RaceKernel& request, const Alive& alive);
  Result<Reply> serve(const TimeFinalists& request, const Alive& alive);
  Result<Reply> serve(const MeasureCalibration& request, const Alive& alive);
  template <class Other>
  Result<Reply> serve(const Other&, const Alive&) {
    return fail(Code::kUnsupported, "this runner was started in the role bench");
  }
  Result<PreparedWorkload> make_case(const OpenWorkload& request);
  Result<KernelTimer*> timer_of(uint64_t slot);
  void forget_old_workloads();

  const std::optional<int> ordinal_;  // of the GPU; none: the CPU
  const std::string libcuda_, libcublaslt_;
  std::unique_ptr<EvaluationDevice> device_;  // null: not prepared. Outlives what follows.
  std::list<OpenCase> opened_;                // the current one first
  std::map<uint64_t, Slot> slots_;
  std::optional<PreparedWorkload> bare_;  // inputs alone, for LaunchKernel
  Digest launched_{};                     // the binary of `bare_kernel_`
  std::unique_ptr<const LoadedKernel> bare_kernel_;
};

}  // namespace kiln::runner
