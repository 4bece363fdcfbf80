// KnownEvaluations: the outcomes of binaries that this worker has screened, so that two candidates,
// or two leases, whose source becomes the same binary cost one measurement. Remembers the kernels
// screened last. One thread.
#pragma once

#include <deque>
#include <unordered_map>

#include "worker/jobs/evaluation.h"

namespace kiln {

class KnownEvaluations {
 public:
  struct Known {
    int candidate = 0;  // whose evaluation it was
    Evaluation evaluation;
    bool built_here = false;  // by this worker, in this process
  };
  // The evaluation of this binary, launched by this recipe, for this kernel; nullptr if not known.
  const Known* find(const Digest& kernel, const Artifact& artifact) const;
  // Only verdicts that another try would not change are kept.
  void remember(const Digest& kernel, const Artifact& artifact, const Known& known);

 private:
  static constexpr size_t kMaxKernels = 64;
  std::unordered_map<Digest, std::unordered_map<Digest, Known>> kernels_;  // by key, by binary
  std::deque<Digest> order_;                                               // keys, oldest first
};

}  // namespace kiln
