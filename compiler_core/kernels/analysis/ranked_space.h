// The part of a large space that is worth a compile: by the cost model's estimate, few of one kind.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "compiler_core/tune/schedule.h"

namespace kiln {

template <typename Decisions>
struct RankedDecisions {
  double cost;  // the cost model's estimate
  Decisions decisions;
};

// At most `most` schedules, the best first. Near relatives differ by less than the estimate's
// error: no more than two of one kind are taken, which `kind_of(decisions)` says as a tuple, and no
// two of one form (`form_of`). Where that leaves less than `few`, the best of the others follow.
template <typename Decisions, typename KindOf, typename FormOf>
std::vector<Schedule> most_promising(std::vector<RankedDecisions<Decisions>> ranked, size_t most,
                                     KindOf kind_of, FormOf form_of, size_t few = 0) {
  using Ranked = RankedDecisions<Decisions>;
  constexpr int kMostOfAKind = 2;
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Ranked& x, const Ranked& y) { return x.cost < y.cost; });
  std::vector<Schedule> space;
  std::map<decltype(kind_of(ranked.front().decisions)), int> of_kind;
  std::set<decltype(form_of(ranked.front().decisions))> forms;
  for (const auto& [cost, decisions] : ranked) {
    if (space.size() == most) break;
    if (of_kind[kind_of(decisions)] == kMostOfAKind || !forms.insert(form_of(decisions)).second)
      continue;
    ++of_kind[kind_of(decisions)];
    space.push_back(to_schedule(decisions));
  }
  for (const auto& [cost, decisions] : ranked)
    if (space.size() < few) add_unless_present(space, to_schedule(decisions));
  return space;
}

template <typename Decisions, typename KindOf>
std::vector<Schedule> most_promising(std::vector<RankedDecisions<Decisions>> ranked, size_t most,
                                     KindOf kind_of) {
  return most_promising(std::move(ranked), most, kind_of,
                        [](const Decisions& made) { return to_schedule(made).to_string(); });
}

}  // namespace kiln
