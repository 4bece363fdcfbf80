// Matmuls with an elementwise epilogue on CUDA.
#pragma once

#include "compiler_core/codegen/lower.h"
#include "compiler_core/tune/cuda/space_matmul.h"

namespace kiln {

// REQUIRES: check_printable(graph), the guarantees of kMatmul.
Result<Source> lower_cuda_matmul(const Graph& graph, const CudaMatmulSchedule& schedule);

}  // namespace kiln
