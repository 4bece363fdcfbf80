// The schedules of running sums on CUDA. Values.
#pragma once

#include <vector>

#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

struct CudaScanSchedule {
  int lanes = 4;      // elements a vector; divides the columns where sums run down columns
  int threads = 256;  // a block
  int64_t split = 1;  // pieces the summed axis is cut into, when lines don't fill the machine

  // kInvalidArgument for another family's schedule, or a value that no kernel can be written for.
  static Result<CudaScanSchedule> from(const Schedule& schedule);
  Schedule to_schedule() const;
};

// REQUIRES: workload.family is kScan, its sizes are constants.
std::vector<Schedule> cuda_scan_candidates(const Workload& workload, const Target& target);

// REQUIRES: check_printable(graph), the guarantees of kScan.
Result<Source> print_cuda_scan(const Graph& graph, const CudaScanSchedule& schedule);

// "cuda.scan".
const KernelTemplate& cuda_scan();

}  // namespace kiln
