// Positions in order along the last axis: rows radix-sorted by a thread each, or in pieces that are
// merged then.
#pragma once

#include "compiler_core/codegen/lower.h"
#include "compiler_core/tune/cpu/space_sort.h"

namespace kiln {

// REQUIRES: check_printable(graph), the guarantees of kSort.
Result<Source> lower_sort(const Graph& graph, const SortSchedule& schedule);

}  // namespace kiln
