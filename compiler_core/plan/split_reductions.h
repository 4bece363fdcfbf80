// A reduction over axes that are not neighbours becomes one reduction per run of neighbours,
// innermost first; so that the row and column families cover every set of axes. Sums may be
// reassociated.
#pragma once

#include "compiler_core/ir/graph.h"

namespace kiln {

Result<Graph> split_reductions(const Graph& graph);

}  // namespace kiln
