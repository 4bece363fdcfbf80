// Column reductions (an axis that is kept is innermost) on CUDA.
#pragma once

#include "compiler_core/codegen/lower.h"
#include "compiler_core/tune/cuda/space_column_reduction.h"

namespace kiln {

// REQUIRES: check_printable(graph), the guarantees of kColumnReduction.
Result<Source> lower_cuda_column_reduction(const Graph& graph,
                                           const CudaColumnReductionSchedule& schedule);

}  // namespace kiln
