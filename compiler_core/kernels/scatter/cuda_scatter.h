// The schedules of scattering on CUDA. Values.
#pragma once

#include <vector>

#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

struct CudaScatterSchedule {
  int lanes = 4;      // elements a vector; divides a row
  int threads = 256;  // a block that combines
  int tile = 1024;    // updates that a block sorts by their row; a power of two

  // kInvalidArgument for another family's schedule, or a value that no kernel can be written for.
  static Result<CudaScatterSchedule> from(const Schedule& schedule);
  Schedule to_schedule() const;
};

// REQUIRES: workload.family is kScatter, its sizes are constants.
std::vector<Schedule> cuda_scatter_candidates(const Workload& workload, const Target& target);

// REQUIRES: check_printable(graph), the guarantees of kScatter.
Result<Source> print_cuda_scatter(const Graph& graph, const CudaScatterSchedule& schedule);

// "cuda.scatter".
const KernelTemplate& cuda_scatter();

}  // namespace kiln
