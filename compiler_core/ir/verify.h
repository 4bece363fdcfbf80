// The executable definition of a valid graph: arity, dtypes, shapes, bounds of views. Run on every
// node a builder adds, and over whole graphs after each pass in debug builds and tests.
#pragma once

#include <span>

#include "compiler_core/ir/graph.h"

namespace kiln {

// Whether `node` is valid given the nodes before it. kInvalidArgument names op and rule.
Status verify_node(const Node& node, std::span<const Node> earlier,
                   std::span<const Symbol> symbols);
Status verify(const Graph& graph);

}  // namespace kiln
