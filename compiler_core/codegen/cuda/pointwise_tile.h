// Pointwise kernels on CUDA for workloads that read some inputs across their grain (a transpose): a
// block brings a square of each through shared memory, so that global memory is read and written
// along what is contiguous on both sides.
#pragma once

#include "compiler_core/codegen/lower.h"
#include "compiler_core/tune/cuda/space_pointwise.h"

namespace kiln {

// Whether the schedule wants tiles, and the graph has something to tile whose two axes `lanes`
// divides.
bool can_tile(const Graph& graph, const CudaPointwiseSchedule& schedule);
// REQUIRES: can_tile(), and what lower_cuda_pointwise() does.
Result<Source> lower_pointwise_tile(const Graph& graph, const CudaPointwiseSchedule& schedule);

}  // namespace kiln
