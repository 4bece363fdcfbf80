// Pointwise kernels on CUDA.
#pragma once

#include "compiler_core/codegen/lower.h"
#include "compiler_core/tune/cuda/space_pointwise.h"

namespace kiln {

// REQUIRES: check_printable(graph), the guarantees of kPointwise.
Result<Source> lower_cuda_pointwise(const Graph& graph, const CudaPointwiseSchedule& schedule);

}  // namespace kiln
