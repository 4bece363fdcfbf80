// Matmuls with an elementwise epilogue on CUDA; see templates/cuda/matmul.cuh and mma.cuh.
#pragma once

#include "compiler_core/codegen/lower.h"
#include "compiler_core/tune/cuda/space_matmul.h"

namespace kiln {

// REQUIRES: check_printable(graph), the guarantees of kMatmul. kInvalidArgument when the schedule
// does not fit the problem; kUnsupported for bool.
Result<Source> lower_cuda_matmul(const Graph& graph, const CudaMatmulSchedule& schedule);

}  // namespace kiln
