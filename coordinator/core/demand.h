// Demand: who waits for a piece of work, and how urgently. Bounded: beyond kMaxSharers, more would
// only have it a little earlier still.
#pragma once

#include <map>

#include "coordinator/core/core.h"

namespace kiln {

inline constexpr size_t kMaxSharers = 8;

using Demand = std::map<ShareId, Priority>;

// The more urgent of two wishes of one share stands.
inline void add_demand(Demand& demand, const ShareId& share, Priority priority) {
  const auto found = demand.find(share);
  if (found != demand.end())
    found->second = std::min(found->second, priority);
  else if (demand.size() < kMaxSharers)
    demand.emplace(share, priority);
}

}  // namespace kiln
