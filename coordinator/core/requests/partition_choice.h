// Chooses among the alternative partitions of a program: the answer is the one whose launches take
// the least time together, by the times of their kernels' winners. Pure functions.
//
// While a compile task tunes, its program is the default partition, but its kernel list covers
// every alternative: the default's own kernels come first, in its order.
#pragma once

#include <vector>

#include "coordinator/core/events.h"

namespace kiln {

// Whether some partition needs no kernel of `failed` (kernel keys).
bool has_partition_without(const std::vector<Digest>& failed, const Program& tuned,
                           const std::vector<PlannedAlternative>& alternatives);

// The program of the fastest partition that needs no kernel of `failed`. The default partition wins
// unless another is faster by more than 2 %, the spread of measurements of one kernel. Where there
// was a choice, `cuts` of the result holds the time of each partition, under the name in the first
// entry of the `cuts` that it came with.
// REQUIRES: has_partition_without(failed, tuned, alternatives).
Program fastest_partition(const std::vector<Digest>& failed, Program tuned,
                          std::vector<PlannedAlternative> alternatives);

}  // namespace kiln
