// Products of what has 8 bits, which kernels may read as it is stored although the graph multiplies
// something wider. Pure functions.
#pragma once

#include "compiler_core/ir/graph.h"

namespace kiln {

// The node of 8 bits that `operand` of a product widens, by Casts that keep every value and maybe
// behind a View; kInvalidNode: none.
NodeId narrow_operand(const Graph& graph, NodeId operand);

// Whether `product` is of two narrow operands that tensor cores multiply as they are, 8-bit floats or
// 8-bit integers, as far as types and the depth say: 16 bytes are the least that lines begin at.
bool is_narrow_product(const Graph& graph, const Node& product);

}  // namespace kiln
