// CandidateLowering: instantiates the candidates of jobs in a process of its own, a kiln-runner in
// the role `lower`, which is bounded in memory and time and may die of a graph without the worker.
// A workload that has cost kMostProcesses of them in a row is refused from then on; an answer clears
// it, since a process may also die of what has nothing to do with it. Thread-safe.
//
//   asked ──> lowered, or refused by the template
//     └── the process dies, or is killed for its silence ──> asked once more in another
//                                            └── again ──> this workload is refused
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "compiler_core/kernels/kernel_template.h"
#include "schema/messages.h"
#include "worker/runner/runner_process.h"

namespace kiln {

class CandidateLowering {
 public:
  // `runner`: what kernels are evaluated in; the same program and sandbox do this.
  explicit CandidateLowering(const RunnerProcess::Options& runner);

  // Errors as kernels/registry.h lower(); kUnsupported also for a workload that cost its
  // processes; kUnavailable: none can be started, or close() was called.
  Result<Buildable> lower(const Job& job, const Schedule& schedule);
  // From any thread: ends the process, and what is asked of it.
  void close() { process_.close(); }

  static constexpr int kMostProcesses = 2;

 private:
  static constexpr size_t kMostRemembered = 1024;  // workloads

  std::mutex mu_;
  RunnerProcess process_;           // guarded by mu_, but for close()
  std::map<Digest, int> in_a_row_;  // guarded by mu_: processes that a workload has cost
};

}  // namespace kiln
