// Column reductions (an axis that is kept is innermost) on CUDA: their schedules. Values.
#pragma once

#include <vector>

#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

struct CudaColumnReductionSchedule {
  // kInvalidArgument for another family's schedule, or a value that no kernel can be written for.
  static Result<CudaColumnReductionSchedule> from(const Schedule& schedule);
  Schedule to_schedule() const;
};

// REQUIRES: workload.family is kColumnReduction, its sizes are constants.
std::vector<Schedule> cuda_column_reduction_space(const Workload& workload, const Target& target);

}  // namespace kiln
