// Products of what has 8 bits, which kernels may read as it is stored although the graph multiplies
// something wider. Pure functions.
#pragma once

#include <optional>

#include "compiler_core/ir/graph.h"
#include "compiler_core/plan/dequantised.h"

namespace kiln {

// The operands of a product that its kernel makes of 8 bits.
struct NarrowProduct {
  std::optional<Dequantised> operands[2];
  bool reads(NodeId node) const;  // whether the node is among their arithmetic
};

// Nothing where no kernel multiplies so, as far as types, the depth and groups say; 16 bytes are the
// least that lines begin at. Either tensor cores multiply both as they are stored, 8-bit floats or
// 8-bit integers; or halves are multiplied with weights of 8-bit integers.
std::optional<NarrowProduct> narrow_product(const Graph& graph, const Node& product);

}  // namespace kiln
