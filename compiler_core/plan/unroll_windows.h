// Turns reductions over small windows, which is what pooling is, into arithmetic on shifted reads:
// max(x[2i], max(x[2i + 1], x[2i + 2])). So pooling becomes pointwise: it runs along the positions
// instead of over rows of four or nine elements, and fuses with what stands around it.
#pragma once

#include "compiler_core/ir/graph.h"

namespace kiln {

// Unrolled is a reduction of at most 64 elements, those of unrolled ones below it counted in, known
// when planning, that some View below it, by way of arithmetic alone, reads as windows: windows
// overlap, or lie between one another in memory. All others, contiguous rows and columns, are left
// to the reduction families.
Result<Graph> unroll_windows(const Graph& graph);

}  // namespace kiln
