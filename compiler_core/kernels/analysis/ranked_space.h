// The part of a large space that is worth a compile: by the cost model's estimate, few of one kind.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "compiler_core/tune/schedule.h"

namespace kiln {

template <typename Decisions>
struct RankedDecisions {
  double nanos;  // the cost model's estimate
  Decisions decisions;
};

// At most `most` schedules, the best first. Near relatives differ by less than the estimate's
// error, so that no more than two of one kind, which `kind_of(decisions)` says as a tuple, are
// taken.
template <typename Decisions, typename KindOf>
std::vector<Schedule> most_promising(std::vector<RankedDecisions<Decisions>> ranked, size_t most,
                                     KindOf kind_of) {
  using Ranked = RankedDecisions<Decisions>;
  constexpr int kMostOfAKind = 2;
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Ranked& x, const Ranked& y) { return x.nanos < y.nanos; });
  std::vector<Schedule> space;
  std::map<decltype(kind_of(ranked.front().decisions)), int> of_kind;
  for (const auto& [nanos, decisions] : ranked) {
    if (space.size() == most) break;
    Schedule made = to_schedule(decisions);
    if (std::find(space.begin(), space.end(), made) != space.end()) continue;
    if (of_kind[kind_of(decisions)]++ < kMostOfAKind) space.push_back(std::move(made));
  }
  return space;
}

}  // namespace kiln
