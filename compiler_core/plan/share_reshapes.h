// Makes one of values that differ in their axes only. Normalisation carries every reshape down to
// the inputs, so that arithmetic which a model does once, and reads in two shapes (a residual
// stream: as rows by a matmul, as [batch, tokens, width] by a norm), stands in the graph twice.
// Before a graph is cut it should be one value: computed once, stored once.
#pragma once

#include "compiler_core/ir/graph.h"

namespace kiln {

// The same outputs, where of elementwise nodes on products that compute equal elements in one
// row-major order the first is kept and the others are reshapes of it.
Result<Graph> share_reshapes(const Graph& graph);

}  // namespace kiln
