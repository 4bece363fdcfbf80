// Row reductions (the reduced axes innermost) on CUDA: their schedules. Values.
#pragma once

#include <vector>

#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

struct CudaRowReductionSchedule {
  // kInvalidArgument for another family's schedule, or a value that no kernel can be written for.
  static Result<CudaRowReductionSchedule> from(const Schedule& schedule);
  Schedule to_schedule() const;
};

// REQUIRES: workload.family is kRowReduction, its sizes are constants.
std::vector<Schedule> cuda_row_reduction_space(const Workload& workload, const Target& target);

}  // namespace kiln
