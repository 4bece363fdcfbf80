// RunnerSession: what kiln-runner does in the role `bench`: serves one request after another on its
// evaluator. One thread.
#pragma once

#include "worker/runner/evaluator.h"

namespace kiln::runner {

class RunnerSession {
 public:
  explicit RunnerSession(std::unique_ptr<KernelEvaluator> bench) : bench_(std::move(bench)) {}
  // A request that cannot be served is Failed; a bad kernel is a verdict, if it leaves us alive.
  Reply handle(const Request& request, const Alive& alive);
  // The device is lost: the reply at hand must be the last.
  bool is_over() const { return bench_->is_lost(); }

 private:
  Result<Reply> serve(const PrepareDevice& request, const Alive& alive);
  Result<Reply> serve(const OpenWorkload& request, const Alive& alive);
  Result<Reply> serve(const VerifyKernel& request, const Alive& alive);
  Result<Reply> serve(const RaceKernel& request, const Alive& alive);
  Result<Reply> serve(const TimeFinalists& request, const Alive& alive);
  Result<Reply> serve(const MeasureCalibration& request, const Alive& alive);
  Result<Reply> serve(const CompileSource& request, const Alive& alive);
  Result<Reply> serve(const CancelCompile& request, const Alive& alive);

  std::unique_ptr<KernelEvaluator> bench_;
};

}  // namespace kiln::runner
