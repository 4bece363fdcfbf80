// Sums of exp(x - the maximum of x) that one loop takes together with that maximum (M. Milakov,
// N. Gimelshein, "Online normalizer calculation for softmax", 2018). Schedules and code generation
// read the same answer. A value.
#pragma once

#include <map>

#include "compiler_core/kernels/analysis/reduction_passes.h"

namespace kiln {

// Each such sum and its maximum.
using OnlineSums = std::map<NodeId, NodeId>;

// Moves these sums into the loop of their maximum; a loop that has no work left is gone, but for
// the last one. REQUIRES: `passes` are the graph's, and nothing kept is read by the sums.
OnlineSums take_sums_online(const Graph& graph, ReductionPasses& passes);

}  // namespace kiln
