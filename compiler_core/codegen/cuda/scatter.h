// Updates combined into the rows that an index names. Without atomics: the updates are sorted by
// their row, stably, and the first of each row takes all of them in their order.
#pragma once

#include "compiler_core/codegen/lower.h"
#include "compiler_core/tune/cuda/space_scatter.h"

namespace kiln {

// REQUIRES: check_printable(graph), the guarantees of kScatter.
Result<Source> lower_cuda_scatter(const Graph& graph, const CudaScatterSchedule& schedule);

}  // namespace kiln
