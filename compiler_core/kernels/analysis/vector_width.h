// Vectors as a CPU target's instruction set has them, for all families.
#pragma once

#include <vector>

#include "compiler_core/ir/graph.h"
#include "compiler_core/program/target.h"

namespace kiln {

// Bytes of the target's vector registers: 32 or 64; 0 when the target is not one we write for.
int vector_bytes(const Target& target);

// Lanes a vector, best guess first: as many as fill a register with the widest type that the graph
// computes in, then the other counts that are worth a try.
std::vector<int> lane_choices(const Graph& graph, const Target& target);

}  // namespace kiln
