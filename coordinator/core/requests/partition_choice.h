// Which of several ways to cut a program is answered: the one whose launches take the least time
// together, by the times of their kernels' winners. Pure functions.
//
// While a flight tunes, its program is the one by rules, but with the kernels of all ways: its own
// come first, in its order.
#pragma once

#include <vector>

#include "coordinator/core/events.h"

namespace kiln {

// Whether some way needs no kernel of `failed` (kernel keys).
bool has_way_without(const std::vector<Digest>& failed, const Program& tuned,
                     const std::vector<PlannedAlternative>& alternatives);

// The program of the fastest way that needs no kernel of `failed`; the one by rules unless another
// is faster by more than 2 %, what measurements of the same kernel differ by. Where there was a
// choice, its `cuts` say what each way took; their names are those of the first cut that each
// program came with.
// REQUIRES: has_way_without(failed, tuned, alternatives).
Program fastest_way(const std::vector<Digest>& failed, Program tuned,
                    std::vector<PlannedAlternative> alternatives);

}  // namespace kiln
