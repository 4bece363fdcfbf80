// Column reductions (an axis that is kept is innermost) on CUDA whose sizes have symbols.
#pragma once

#include "compiler_core/kernels/column_reduction/cuda_column_reduction.h"
#include "compiler_core/kernels/kernel_template.h"

namespace kiln {

// A thread a column, which is read again by every loop over it. Of the schedule threads() counts.
// REQUIRES: check_printable(graph), the guarantees of kColumnReduction.
Result<Source> print_cuda_symbolic_columns(const Graph& graph,
                                           const CudaColumnReductionSchedule& schedule);

}  // namespace kiln
