// Joins kernels that belong together: a producer with its consumer, and siblings that read the same
// buffer, where one iteration space holds both. classify() has the last word on every join.
#pragma once

#include <vector>

#include "compiler_core/plan/stored_values.h"

namespace kiln {

using KernelOutputs = std::vector<NodeId>;  // what one kernel stores, ascending

// The kernels of `graph`, at first one for each stored value. Values that are needed only inside a
// joined kernel stop being stored.
std::vector<KernelOutputs> fuse_kernels(const Graph& graph, StoredValues& values);

}  // namespace kiln
