#include "compiler_core/kernels/convolution/cuda_convolution.h"

#include <algorithm>

#include "compiler_core/kernels/printed_template.h"

namespace kiln {

std::vector<Schedule> cuda_convolution_candidates(const Workload& workload, const Target& target) {
  const ConvolutionProblem problem = ConvolutionProblem::of(workload.graph);
  std::vector<Schedule> space = cuda_matmul_candidates(problem.product, target);
  for (Schedule& schedule : space) schedule.template_name = CudaConvolutionSchedule::kTemplate;
  return space;
}

namespace {

// A split's sums lie in a workspace of constant size.
std::optional<CudaConvolutionSchedule> adapt(const Graph& /*graph*/,
                                             CudaConvolutionSchedule chosen) {
  chosen.splits = chosen.cluster = 1;
  return chosen;
}

// tests/gpu/LOG.md: a group of few results fills as much of a tile of sixteen; of halves, what the
// tensor cores of Hopper do is 2.4 to 8.7 times as fast.
double cuda_convolution_efficiency(const Workload& workload) {
  constexpr double kTileRows = 16;
  const ConvolutionProblem problem = ConvolutionProblem::of(workload.graph);
  const auto rows = static_cast<double>(problem.product.m);
  return (is_16_bit_float(problem.product.stored) ? 0.25 : 0.5) * std::min(1.0, rows / kTileRows);
}

}  // namespace

const KernelTemplate& cuda_convolution() {
  static const PrintedTemplate<CudaConvolutionSchedule> made({
      .version = 12,
      .backend = Backend::kCuda,
      .family = Family::kConvolution,
      .check = check_channels_are_second,
      .candidates = cuda_convolution_candidates,
      .print_for = print_cuda_convolution,
      .adapt = adapt,
      .expected_efficiency = cuda_convolution_efficiency,
  });
  return made;
}

}  // namespace kiln
