// Algebraic identities that change no bit of a result beyond reassociation: x*1, x-c as x+(-c),
// division by a power of two, double negation, conversions that lose nothing, arithmetic on
// constants, a select that is decided, powers with the exponents PyTorch special-cases, reductions
// of nothing, of one element and of reductions. Not among them, because a zero's sign or a NaN
// would change: x+0, x*0, x-x.
#pragma once

#include "compiler_core/ir/graph.h"

namespace kiln {

Result<Graph> simplify(const Graph& graph);

}  // namespace kiln
