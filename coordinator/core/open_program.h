// OpenProgram: a program that is being worked on, as people look at it. Plain values.
#pragma once

#include <string>
#include <vector>

#include "compiler_core/plan/workload.h"
#include "compiler_core/program/target.h"

namespace kiln {

struct OpenKernel {
  Digest key;
  Family family = Family::kPointwise;
  // "cached" (it was tuned before), "screening", "rebuilding", "finals", "confirming", "storing",
  // "done", "failed"
  std::string_view stage;
  int candidates = 0, settled = 0, waiting = 0;  // settled: measured or rejected
  double best_us = 0;                            // 0: none was timed
};

struct OpenProgram {
  Digest key, graph;
  Target target;
  Mode mode = Mode::kDefault;
  std::string_view stage;  // of CompileTask: "looking_up", ..., "storing"
  double age_s = 0;        // since its first request
  int waiters = 0;         // requests
  bool detached = false;   // goes on without them
  std::vector<OpenKernel> kernels{};
  int more_kernels = 0;   // that are not in `kernels`
  std::string waiting{};  // what a worker for its target waits for; empty: nothing
};

}  // namespace kiln
