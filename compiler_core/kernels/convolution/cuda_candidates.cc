#include "compiler_core/kernels/convolution/cuda_convolution.h"

#include "compiler_core/kernels/analysis/dynamic_candidates.h"
#include "compiler_core/kernels/printed_template.h"

namespace kiln {
namespace {

constexpr std::string_view kName = "cuda.convolution";

}  // namespace

Result<CudaConvolutionSchedule> CudaConvolutionSchedule::from(const Schedule& schedule) {
  if (schedule.template_name != kName)
    return fail(Code::kInvalidArgument, "not a schedule of cuda.convolution");
  TRY(const CudaMatmulSchedule product,
      CudaMatmulSchedule::from({"cuda.matmul", schedule.decisions}));
  return CudaConvolutionSchedule{product};
}

Schedule CudaConvolutionSchedule::to_schedule() const {
  return {std::string(kName), CudaMatmulSchedule::to_schedule().decisions};
}

std::vector<Schedule> cuda_convolution_candidates(const Workload& workload, const Target& target) {
  const ConvolutionProblem problem = ConvolutionProblem::of(workload.graph);
  std::vector<Schedule> space = cuda_matmul_candidates(problem.product, target);
  for (Schedule& schedule : space) schedule.template_name = kName;
  return space;
}

namespace {

// A split's sums lie in a workspace of constant size.
std::optional<CudaConvolutionSchedule> adapt(const Graph& /*graph*/,
                                             CudaConvolutionSchedule chosen) {
  chosen.splits = 1;
  return chosen;
}

Result<std::vector<Schedule>> candidates(const Workload& workload, const Target& target) {
  return dynamic_candidates<CudaConvolutionSchedule>(workload, target, cuda_convolution_candidates,
                                                     adapt);
}

Result<Source> print(const Graph& graph, const CudaConvolutionSchedule& schedule,
                     const Target& /*target*/) {
  return print_cuda_convolution(graph, schedule);
}

}  // namespace

const KernelTemplate& cuda_convolution() {
  static const PrintedTemplate<CudaConvolutionSchedule> made(
      kName, 1, Backend::kCuda, Family::kConvolution, candidates, print);
  return made;
}

}  // namespace kiln
