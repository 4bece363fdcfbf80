// Row reductions: the reduced axes are innermost, so a row is contiguous and stays in cache from
// one loop over it to the next: softmax, layernorm, rmsnorm, a sum of everything.
#pragma once

#include "compiler_core/codegen/lower.h"
#include "compiler_core/tune/cpu/space_row_reduction.h"

namespace kiln {

// REQUIRES: check_printable(graph), the guarantees of kRowReduction.
Result<Source> lower_row_reduction(const Graph& graph, const RowReductionSchedule& schedule);

}  // namespace kiln
