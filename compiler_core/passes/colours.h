// Colour refinement (Weisfeiler and Leman): a colour for every node and symbol that follows from
// what the graph computes, and not from the order in which it was written. Equal colours mean that
// refinement cannot tell two apart.
//
// A node starts with its op, dtype, shape and attributes. A sweep upwards adds what it is computed
// from, a sweep downwards what it is used for; sweeps repeat until no colour splits further.
// Distinct nodes of equal colour stem from inputs of equal colour (equal nodes are one node), so
// that one of those inputs is then singled out and refinement goes on, until all inputs differ.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln {

using Colour = uint64_t;

struct Colours {
  std::vector<Colour> nodes;    // 0 for nodes that no output needs
  std::vector<Colour> symbols;  // by SymbolId
};

Colours refine_colours(const Graph& graph);

}  // namespace kiln
