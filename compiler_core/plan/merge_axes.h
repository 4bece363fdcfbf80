// Brings a kernel's iteration space to its lowest rank: axes of size 1 are dropped, neighbouring
// axes that every View walks as one are merged, and inputs are declared in the shape in which they
// are read densely (one axis when they never are). So a kernel does not depend on how many axes a
// model writes, and code generation sees the long loops.
#pragma once

#include "compiler_core/ir/graph.h"

namespace kiln {

// The graph itself where its nodes do not share one iteration space.
Result<Graph> merge_axes(const Graph& graph);

}  // namespace kiln
