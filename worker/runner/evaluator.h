// KernelEvaluator: verifies and times kernels on one device, the CPU of this machine or a GPU. One
// workload is open at a time; slots hold the kernels that were verified for it.
//
//   open ──> a workload is current; its slots are empty
//   verify ─> a slot holds a kernel that gave the right result (else the slot is empty)
//   race, time finalists: of verified slots
//
// Recently used workloads are kept, since their references cost more than anything else here. A
// request that cannot be served is an Error; a bad kernel is a verdict, if it leaves us alive. One
// thread.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "compiler_core/program/artifact.h"
#include "worker/runner/protocol.h"
#include "worker/runner/timing.h"

namespace kiln::runner {

class KernelEvaluator {
 public:
  virtual ~KernelEvaluator() = default;
  virtual Result<DevicePrepared> prepare(const PrepareDevice& request) = 0;
  virtual Result<Opened> open(const OpenWorkload& request, const Alive& alive) = 0;
  virtual Result<Verified> verify(uint64_t slot, Artifact artifact, const Alive& alive) = 0;
  virtual Result<Raced> race_slot(const RaceKernel& request, const Alive& alive) = 0;
  virtual Result<FinalistsTimed> time_slots(const TimeFinalists& request, const Alive& alive) = 0;
  // What the device's own fixed kernel takes now, the least of a few runs: it tells a slower clock,
  // or a slower card, from a slower candidate. Some milliseconds.
  virtual Result<double> calibration_us() = 0;
  // The device answers no more in this process: after the reply at hand another one must take over.
  virtual bool is_lost() const { return false; }
};

std::unique_ptr<KernelEvaluator> make_cpu_evaluator(int threads);
// A GPU by its number. Nothing is opened before prepare(). `libcuda` as for CudaDevice::open.
std::unique_ptr<KernelEvaluator> make_cuda_evaluator(int ordinal, std::string libcuda);

// Says that we are alive while something of ours, that is slow but ends, runs in its scope.
class Heartbeat {
 public:
  explicit Heartbeat(const Alive& alive) : thread_([this, &alive] { beat(alive); }) {}
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;

 private:
  void beat(const Alive& alive);
  std::mutex mu_;
  std::condition_variable changed_;
  bool over_ = false;  // guarded by mu_
  std::thread thread_;
};

// Of a workload and its inputs: what an open one is known by.
Digest key_of(const OpenWorkload& request);

}  // namespace kiln::runner
