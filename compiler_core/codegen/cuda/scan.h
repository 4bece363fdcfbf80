// Running sums along an axis of [outer, size, inner]: a block goes along a row, or a thread down
// each vector of columns.
#pragma once

#include "compiler_core/codegen/lower.h"
#include "compiler_core/tune/cuda/space_scan.h"

namespace kiln {

// REQUIRES: check_printable(graph), the guarantees of kScan.
Result<Source> lower_cuda_scan(const Graph& graph, const CudaScanSchedule& schedule);

}  // namespace kiln
