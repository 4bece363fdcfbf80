// Row reductions (the reduced axes innermost) on CUDA whose rows have any length; any number of
// rows of one length is cuda/row_reduction.h's.
#pragma once

#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/kernels/row_reduction/cuda_row_reduction.h"

namespace kiln {

// A block a row, which is read again by every loop over it. Of the schedule lanes (1 where rows are
// not known to be whole vectors), threads and stream count. REQUIRES: check_printable(graph), the
// guarantees of kRowReduction; threads are whole warps.
Result<Source> print_cuda_symbolic_rows(const Graph& graph,
                                        const CudaRowReductionSchedule& schedule);

}  // namespace kiln
