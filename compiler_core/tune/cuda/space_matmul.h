// Matmuls with an elementwise epilogue on CUDA: their schedules. Values.
#pragma once

#include <vector>

#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

struct CudaMatmulSchedule {
  // kInvalidArgument for another family's schedule, or a value that no kernel can be written for.
  static Result<CudaMatmulSchedule> from(const Schedule& schedule);
  Schedule to_schedule() const;
};

// REQUIRES: workload.family is kMatmul, its sizes are constants.
std::vector<Schedule> cuda_matmul_space(const Workload& workload, const Target& target);

}  // namespace kiln
