// Convolution kernels on CUDA: implicit products on the matmul's tiles; see
// templates/cuda/convolution.cuh.
#pragma once

#include "compiler_core/codegen/lower.h"
#include "compiler_core/tune/cuda/space_convolution.h"

namespace kiln {

// REQUIRES: check_printable(graph), the guarantees of kConvolution. kInvalidArgument when the
// schedule does not fit the problem.
Result<Source> lower_cuda_convolution(const Graph& graph, const CudaMatmulSchedule& schedule);

}  // namespace kiln
