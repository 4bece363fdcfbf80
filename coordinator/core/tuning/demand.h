// Demand: who waits for a piece of work, and how urgently. Bounded: beyond kMaxSharers, more would
// only have it a little earlier still; but one who waits for it takes the place of a warm-up.
#pragma once

#include <algorithm>
#include <map>

#include "coordinator/core/events.h"

namespace kiln {

inline constexpr size_t kMaxSharers = 8;

using Demand = std::map<ShareId, Priority>;

// The more urgent of two wishes of one share stands.
inline void add_demand(Demand& demand, const ShareId& share, Priority priority) {
  if (const auto found = demand.find(share); found != demand.end()) {
    found->second = std::min(found->second, priority);
    return;
  }
  if (demand.size() >= kMaxSharers) {
    const auto warm_up = std::ranges::find(demand, Priority::kWarmUp, &Demand::value_type::second);
    if (priority == Priority::kWarmUp || warm_up == demand.end()) return;
    demand.erase(warm_up);
  }
  demand.emplace(share, priority);
}

}  // namespace kiln
