// Evaluation: the outcome of one candidate's binary in the runner. Whatever the binary does to the
// runner is its verdict; the next evaluation then starts with a fresh runner.
#pragma once

#include <span>

#include "compiler_core/program/artifact.h"
#include "schema/messages.h"
#include "worker/runner/runner_process.h"

namespace kiln {

struct Evaluation {
  Verdict verdict = Verdict::kOk;
  std::string
      log;  // why, for anything but ok; for a right one what disturbed its clock, if anything
  Measurement measurement;
  bool dropped = false;  // lost the race: right, but slower than the incumbent
  double open_ms = 0;    // inputs and reference, where they had to be made
  double verify_ms = 0, measure_ms = 0;
};

// Whether the kernel is a user's own, and so somebody else's code: a custom call's, or one that is
// offered (program/offered_kernel.h).
bool is_users_kernel(const Job& job, const Artifact& artifact);

// Verifies `artifact`, and races it against `incumbent_us` when `job` is a kScreen.
Evaluation evaluate_candidate(RunnerProcess& runner, const Job& job, const Artifact& artifact,
                              double incumbent_us);

// Verifies all, then times the right ones in interleaved rounds; if one of them brings the runner
// down, each by itself, so that the others keep their samples. Users' own kernels have a
// runner each, and where there is one all are timed one after another. One evaluation per artifact, in order.
std::vector<Evaluation> evaluate_finalists(RunnerProcess& runner, const Job& job,
                                           std::span<const Artifact> artifacts);

}  // namespace kiln
