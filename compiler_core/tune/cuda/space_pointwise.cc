#include "compiler_core/tune/cuda/space_pointwise.h"

namespace kiln {

Result<CudaPointwiseSchedule> CudaPointwiseSchedule::from(const Schedule&) {
  return fail(Code::kUnsupported, "not written yet");
}

Schedule CudaPointwiseSchedule::to_schedule() const {
  return {Family::kPointwise, {}};
}

std::vector<Schedule> cuda_pointwise_space(const Workload&, const Target&) {
  return {CudaPointwiseSchedule{}.to_schedule()};
}

}  // namespace kiln
