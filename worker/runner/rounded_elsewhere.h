// A graph that rounds in other places on its way, as kernels do: one keeps in f32 the halves that
// lie between two of its computations, another rounds a multiple of them (attention rounds its
// weights before it divides by their sum), or rounds each step of a sum of f32. Pure.
#pragma once

#include "compiler_core/ir/graph.h"

namespace kiln::runner {

// Whether some value is rounded to a half, or is a sum of f32, and is computed with again.
bool rounds_inside(const Graph& graph);

// A graph of the same inputs and outputs. Such halves are not rounded, or are rounded as one of two
// multiples of themselves; such sums are off by a rounding of each of their terms (2^-24 of the sum
// of magnitudes). Each element of an output is the one of those three that strays furthest from
// `graph`'s own. The builder's error for a graph that was never verified.
Result<Graph> rounded_elsewhere(const Graph& graph);

}  // namespace kiln::runner
