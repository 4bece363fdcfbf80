#include "compiler_core/tune/cuda/space_row_reduction.h"

namespace kiln {

Result<CudaRowReductionSchedule> CudaRowReductionSchedule::from(const Schedule&) {
  return fail(Code::kUnsupported, "not written yet");
}

Schedule CudaRowReductionSchedule::to_schedule() const {
  return {Family::kRowReduction, {}};
}

std::vector<Schedule> cuda_row_reduction_space(const Workload&, const Target&) {
  return {CudaRowReductionSchedule{}.to_schedule()};
}

}  // namespace kiln
