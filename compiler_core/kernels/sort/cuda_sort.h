// The schedules of sorting on CUDA. Values.
#pragma once

#include <string>
#include <vector>

#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

struct CudaSortSchedule {
  int tile = 1024;    // entries that a block sorts at once: rows, or a piece of one; a power of two
  int threads = 256;  // a block

  // kInvalidArgument for another family's schedule, or a value that no kernel can be written for.
  static Result<CudaSortSchedule> from(const Schedule& schedule);
  Schedule to_schedule() const;
};

// REQUIRES: workload.family is kSort, its sizes are constants.
std::vector<Schedule> cuda_sort_candidates(const Workload& workload, const Target& target);

// REQUIRES: check_printable(graph), the guarantees of kSort.
Result<Source> print_cuda_sort(const Graph& graph, const CudaSortSchedule& schedule);

// "cuda.sort".
const KernelTemplate& cuda_sort();

}  // namespace kiln
