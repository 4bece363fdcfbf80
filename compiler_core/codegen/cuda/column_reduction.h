// Column reductions (an axis that is kept is innermost) on CUDA.
#pragma once

#include "compiler_core/codegen/lower.h"
#include "compiler_core/tune/column_extent.h"
#include "compiler_core/tune/cuda/space_column_reduction.h"
#include "compiler_core/tune/reduction_passes.h"

namespace kiln {

// REQUIRES: check_printable(graph), the guarantees of kColumnReduction.
Result<Source> lower_cuda_column_reduction(const Graph& graph,
                                           const CudaColumnReductionSchedule& schedule,
                                           const Target& target);

// schedule.split > 0: the phases that stream through pieces of the rows (column_split.cc), of
// folded rows where `folded` has them (tune/cuda/column_fold.h).
Source print_cuda_split_columns(const Graph& graph, const ReductionPasses& passes,
                                const ColumnExtent& extent, const Graph* folded,
                                const CudaColumnReductionSchedule& schedule);

// Blocks that shall fit an SM at once, which bounds the registers of a thread to 64.
int column_blocks_an_sm(int threads);

}  // namespace kiln
