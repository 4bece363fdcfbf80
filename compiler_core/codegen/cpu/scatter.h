// Updates combined into the rows that an index names. A block owns a part of the destination: it
// copies it from the operand and takes its updates in their order, so that results never differ.
#pragma once

#include "compiler_core/codegen/lower.h"
#include "compiler_core/tune/cpu/space_scatter.h"

namespace kiln {

// REQUIRES: check_printable(graph), the guarantees of kScatter.
Result<Source> lower_scatter(const Graph& graph, const ScatterSchedule& schedule);

}  // namespace kiln
