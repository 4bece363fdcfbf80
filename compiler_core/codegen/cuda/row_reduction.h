// Row reductions (the reduced axes innermost) on CUDA.
#pragma once

#include "compiler_core/codegen/lower.h"
#include "compiler_core/tune/cuda/space_row_reduction.h"

namespace kiln {

// REQUIRES: check_printable(graph), the guarantees of kRowReduction.
Result<Source> lower_cuda_row_reduction(const Graph& graph,
                                        const CudaRowReductionSchedule& schedule,
                                        const Target& target);

}  // namespace kiln
