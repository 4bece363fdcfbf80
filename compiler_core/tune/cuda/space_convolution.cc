#include "compiler_core/tune/cuda/space_convolution.h"

namespace kiln {

Result<CudaMatmulSchedule> cuda_convolution_schedule(const Schedule& schedule) {
  if (schedule.family != Family::kConvolution)
    return fail(Code::kInvalidArgument, "not a convolution schedule");
  return CudaMatmulSchedule::from({Family::kMatmul, schedule.decisions});
}

std::vector<Schedule> cuda_convolution_space(const Workload& workload, const Target& target) {
  const ConvolutionProblem problem = ConvolutionProblem::of(workload.graph);
  std::vector<Schedule> space = cuda_matmul_space(problem.product, target);
  for (Schedule& schedule : space) schedule.family = Family::kConvolution;
  return space;
}

}  // namespace kiln
