// The axes of nodes that are kernels of their own: all that such a kernel has to tell apart.
#pragma once

#include "compiler_core/ir/graph.h"

namespace kiln {

// Of a graph that is one scan, sort or scatter of inputs: a scan's operand becomes [outer, size,
// inner], a sort's [rows, size], a scatter's [rows, elements of one] with an index of one axis.
// Everything else comes back as it is.
Result<Graph> merge_alone_axes(const Graph& graph);

}  // namespace kiln
