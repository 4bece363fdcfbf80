// Pointwise kernels: every output element from elements of the inputs, in one pass.
#pragma once

#include "compiler_core/codegen/lower.h"
#include "compiler_core/tune/cpu/space_pointwise.h"

namespace kiln {

// REQUIRES: check_printable(graph), the guarantees of kPointwise.
Result<Source> lower_pointwise(const Graph& graph, const PointwiseSchedule& schedule);

}  // namespace kiln
