// Candidates for sizes that are known only at run time. Schedules are chosen as for the sizes at
// which the symbols are measured (plan/sizes.h), and adapted to what can be printed without knowing
// the sizes. Pure functions.
#pragma once

#include <optional>

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

// The same, each adapted by adapt(graph, decisions) -> std::optional<Decisions>, without
// duplicates. Where none is left, fallback(graph, the first one's decisions). A workload without
// symbols has its fixed candidates, as they are.
template <class Decisions, class Adapt, class Fallback>
Result<std::vector<Schedule>> dynamic_candidates(const Workload& workload, const Target& target,
                                                 FixedCandidates fixed, Adapt adapt,
                                                 Fallback fallback) {
  TRY(const std::vector<Schedule> chosen, candidates_at_measured_sizes(workload, target, fixed));
  if (workload.graph.symbols().empty()) return chosen;
  std::vector<Schedule> space;
  for (const Schedule& schedule : chosen) {
    TRY(const Decisions decisions, Decisions::from(schedule));
    if (const std::optional<Decisions> adapted = adapt(workload.graph, decisions))
      add_unless_present(space, adapted->to_schedule());
  }
  if (space.empty() && !chosen.empty()) {
    TRY(const Decisions first, Decisions::from(chosen[0]));
    space.push_back(fallback(workload.graph, first).to_schedule());
  }
  return space;
}

template <class Decisions, class Adapt>
Result<std::vector<Schedule>> dynamic_candidates(const Workload& workload, const Target& target,
                                                 FixedCandidates fixed, Adapt adapt) {
  return dynamic_candidates<Decisions>(workload, target, fixed, adapt,
                                       [](const Graph&, const Decisions& first) { return first; });
}

}  // namespace kiln
