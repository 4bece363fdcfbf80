// Convolutions with an elementwise epilogue on CUDA: their schedules are those of the matmul that
// each image and group is. Values.
#pragma once

#include <vector>

#include "compiler_core/kernels/convolution/convolution_problem.h"
#include "compiler_core/kernels/decisions.h"
#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/kernels/matmul/cuda_matmul.h"

namespace kiln {

// The decisions of the product.
struct CudaConvolutionSchedule : CudaMatmulSchedule {
  static constexpr std::string_view kTemplate = "cuda.convolution";
};

// REQUIRES: workload.family is kConvolution, its sizes are constants.
std::vector<Schedule> cuda_convolution_candidates(const Workload& workload, const Target& target);

// REQUIRES: the guarantees of kConvolution. kInvalidArgument when the
// schedule does not fit the problem.
Result<Source> print_cuda_convolution(const Graph& graph, const CudaConvolutionSchedule& schedule,
                                      const Target& target);

// "cuda.convolution".
const KernelTemplate& cuda_convolution();

}  // namespace kiln
