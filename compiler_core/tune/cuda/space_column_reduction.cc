#include "compiler_core/tune/cuda/space_column_reduction.h"

namespace kiln {

Result<CudaColumnReductionSchedule> CudaColumnReductionSchedule::from(const Schedule&) {
  return fail(Code::kUnsupported, "not written yet");
}

Schedule CudaColumnReductionSchedule::to_schedule() const {
  return {Family::kColumnReduction, {}};
}

std::vector<Schedule> cuda_column_reduction_space(const Workload&, const Target&) {
  return {CudaColumnReductionSchedule{}.to_schedule()};
}

}  // namespace kiln
