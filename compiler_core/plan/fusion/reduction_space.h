// The iteration space of a reduction, and the Views that keep it: what decides whether a value belongs
// to the kernel of a reduction. Pure functions.
#pragma once

#include "compiler_core/ir/graph.h"

namespace kiln {

// Sizes of batch ++ reduced ++ kept of a reduction. Nodes that walk these in one row-major order
// belong to one iteration space, however their axes are written.
struct ReductionSizes {
  Dim batch = 1, reduced = 1, kept = 1;
  bool operator==(const ReductionSizes&) const = default;
};
// REQUIRES: the reduced axes are neighbours (split_reductions).
ReductionSizes reduction_sizes(const Graph& graph, const Node& reduce);

// Whether `view` reads its operand's elements all, once and in order: a reshape.
bool is_reshape(const Graph& graph, const Node& view);

// Whether `view` repeats a reduced value of `sizes` along the reduced axes, in row-major order.
bool is_spread(const Node& view, const ReductionSizes& sizes);

}  // namespace kiln
