// Candidates for sizes that are known only at run time. Schedules are chosen as for the sizes at
// which the symbols are measured (plan/sizes.h), and adapted to what can be printed without knowing
// the sizes. Pure functions.
#pragma once

#include <span>
#include <vector>

#include "compiler_core/plan/sizes.h"
#include "compiler_core/plan/workload.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

// The workload with its symbols at `sizes`: constants everywhere. kInvalidArgument: a size outside
// a symbol's range.
Result<Workload> sized_workload(const Workload& workload, std::span<const int64_t> sizes);

// `size` at the measured sizes; INT64_MAX where that overflows.
int64_t at_measured_sizes(const Dim& size, std::span<const Symbol> symbols);

// Whether `size` is a multiple of `lanes` for all values of the symbols.
bool has_whole_vectors(const Dim& size, int lanes);

// A tile for `entries` of any number: large enough for as many as there can be, or for few rounds
// of merging; `chosen` where their number is a constant.
int dynamic_tile(const Graph& graph, const Dim& entries, int chosen);

using FixedCandidates = std::vector<Schedule> (*)(const Workload&, const Target&);

// fixed(workload at its measured sizes).
Result<std::vector<Schedule>> candidates_at_measured_sizes(const Workload& workload,
                                                           const Target& target,
                                                           FixedCandidates fixed);

}  // namespace kiln
