#include "compiler_core/tune/cuda/space_matmul.h"

namespace kiln {

Result<CudaMatmulSchedule> CudaMatmulSchedule::from(const Schedule&) {
  return fail(Code::kUnsupported, "not written yet");
}

Schedule CudaMatmulSchedule::to_schedule() const {
  return {Family::kMatmul, {}};
}

std::vector<Schedule> cuda_matmul_space(const Workload&, const Target&) {
  return {CudaMatmulSchedule{}.to_schedule()};
}

}  // namespace kiln
