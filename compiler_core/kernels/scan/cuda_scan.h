// The schedules of running sums on CUDA. Values.
#pragma once

#include <vector>

#include "compiler_core/kernels/decisions.h"
#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

struct CudaScanSchedule {
  static constexpr std::string_view kTemplate = "cuda.scan";
  static constexpr int64_t kMostSplit = 1024;

  int lanes = 4;      // elements a vector; divides the columns where sums run down columns
  int threads = 256;  // a block
  int64_t split = 1;  // pieces the summed axis is cut into, when lines don't fill the machine

  static void fields(auto& f, auto& s) {
    f("lanes", s.lanes, powers_of_two(1, 16));
    f("threads", s.threads, powers_of_two(32, 1024));
    f("split", s.split, between(1, kMostSplit));
  }
};

// REQUIRES: workload.family is kScan, its sizes are constants.
std::vector<Schedule> cuda_scan_candidates(const Workload& workload, const Target& target);

// REQUIRES: the guarantees of kScan.
Result<Source> print_cuda_scan(const Graph& graph, const CudaScanSchedule& schedule);

// "cuda.scan".
const KernelTemplate& cuda_scan();

}  // namespace kiln
