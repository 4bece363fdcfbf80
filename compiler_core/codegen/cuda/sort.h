// Positions in order along the last axis: tiles sorted in shared memory, and merged by one launch
// for each doubling where a row is longer.
#pragma once

#include <string>

#include "compiler_core/codegen/lower.h"
#include "compiler_core/tune/cuda/space_sort.h"

namespace kiln {

// REQUIRES: check_printable(graph), the guarantees of kSort.
Result<Source> lower_cuda_sort(const Graph& graph, const CudaSortSchedule& schedule);

}  // namespace kiln
