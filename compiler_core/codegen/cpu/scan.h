// Running sums along an axis of [outer, size, inner]: along rows where inner is 1, else down
// columns, a strip of vectors at a time.
#pragma once

#include "compiler_core/codegen/lower.h"
#include "compiler_core/tune/cpu/space_scan.h"

namespace kiln {

// REQUIRES: check_printable(graph), the guarantees of kScan.
Result<Source> lower_scan(const Graph& graph, const ScanSchedule& schedule);

}  // namespace kiln
