// Pointwise kernels on CUDA whose sizes have symbols.
#pragma once

#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/kernels/pointwise/cuda_pointwise.h"

namespace kiln {

// Of the schedule lanes (1 where rows are not known to be whole vectors), threads and stream count.
// REQUIRES: check_printable(graph), the guarantees of kPointwise.
Result<Source> print_cuda_symbolic_pointwise(const Graph& graph,
                                             const CudaPointwiseSchedule& schedule);

}  // namespace kiln
