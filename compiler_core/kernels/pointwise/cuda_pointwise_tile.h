// Pointwise kernels on CUDA for workloads that read some inputs across their grain (a transpose): a
// block brings a square of each through shared memory, so that global memory is read and written
// along what is contiguous on both sides.
#pragma once

#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/kernels/pointwise/cuda_pointwise.h"

namespace kiln {

// Whether the schedule wants tiles, and the graph has something to tile whose two axes `lanes`
// divides.
bool can_tile(const Graph& graph, const CudaPointwiseSchedule& schedule);
// REQUIRES: can_tile(), and what print_cuda_pointwise() does.
Result<Source> print_cuda_pointwise_tile(const Graph& graph, const CudaPointwiseSchedule& schedule);

}  // namespace kiln
