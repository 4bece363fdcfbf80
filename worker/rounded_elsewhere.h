// A graph that rounds to halves in other places on its way, as kernels do: one keeps in f32 what
// lies between two of its computations, another rounds a multiple (attention rounds its weights
// before it divides by their sum). Pure.
#pragma once

#include "compiler_core/ir/graph.h"

namespace kiln::runner {

// Whether some value is computed, rounded to a half and computed with again.
bool has_inner_halves(const Graph& graph);

// A graph of the same inputs and outputs. Such values are not rounded, or are rounded as one of
// two multiples of themselves: each element of an output is the one of those three that strays
// furthest from `graph`'s own. The builder's error for a graph that was never verified.
Result<Graph> rounded_elsewhere(const Graph& graph);

}  // namespace kiln::runner
