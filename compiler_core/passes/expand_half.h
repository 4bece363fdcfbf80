// Spells out that half types compute in f32: arithmetic on f16, bf16 and f8 becomes a cast of the
// operands to f32, the operation, and a cast of the result back. Afterwards these types occur only
// where values are moved (inputs, views, pads, concats, gathers, matmul operands) and at casts to
// and from f32, so that no later stage has to know the rule.
#pragma once

#include "compiler_core/ir/graph.h"

namespace kiln {

Result<Graph> expand_half(const Graph& graph);

}  // namespace kiln
