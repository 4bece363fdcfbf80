// RunnerSession: what kiln-runner knows and does: serves one request after another. One thread.
//
//   open ──> a workload is current; its slots are empty
//   verify ─> a slot holds a kernel that gave the right result (else the slot is empty)
//   race, time finalists: of verified slots
//
// Recently used workloads are kept, since their references cost more than anything else here.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>

#include "worker/bench.h"
#include "worker/runner_protocol.h"

namespace kiln::runner {

class RunnerSession {
 public:
  explicit RunnerSession(int threads) : pool_(threads) {}
  // A request that cannot be served is Failed; a bad kernel is a verdict, if it leaves us alive.
  Reply handle(const Request& request, const Alive& alive);

 private:
  struct OpenCase {
    Digest key;  // of graph text and seed
    WorkloadCase workload;
    double reference_ms = 0;
    std::optional<RotatingBuffers> buffers;  // made for the first timing
  };
  struct Slot {
    Kernel kernel;
    std::unique_ptr<KernelTimer> timer;  // made for the first timing
  };

  Result<Reply> serve(const OpenWorkload& request, const Alive& alive);
  Result<Reply> serve(const VerifyKernel& request, const Alive& alive);
  Result<Reply> serve(const RaceKernel& request, const Alive& alive);
  Result<Reply> serve(const TimeFinalists& request, const Alive& alive);
  // Requests to runners of another role.
  template <class Other>
  Result<Reply> serve(const Other&, const Alive&) {
    return fail(Code::kUnsupported, "this runner was started for something else");
  }
  Result<KernelTimer*> timer_of(uint64_t slot);
  void forget_old_workloads();

  ThreadPool pool_;
  std::list<OpenCase> opened_;  // the current one first
  std::map<uint64_t, std::unique_ptr<Slot>> slots_;
};

}  // namespace kiln::runner
