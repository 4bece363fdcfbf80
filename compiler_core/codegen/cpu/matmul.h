// Matmul kernels: one batched product with an elementwise epilogue; see templates/matmul.h and
// templates/matmul_dot.h.
#pragma once

#include "compiler_core/codegen/lower.h"
#include "compiler_core/tune/cpu/space_matmul.h"

namespace kiln {

// REQUIRES: check_printable(graph), the guarantees of kMatmul. kInvalidArgument when the schedule
// does not fit the operands.
Result<Source> lower_matmul(const Graph& graph, const MatmulSchedule& schedule);

}  // namespace kiln
