// Tenants: on whose behalf a piece of work is done, and how urgently. Bounded by kMaxTenants: a
// further tenant would only have the work a little earlier; an interactive one takes a warm-up's
// place.
#pragma once

#include <algorithm>
#include <map>

#include "coordinator/core/events.h"

namespace kiln {

inline constexpr size_t kMaxTenants = 8;

using Tenants = std::map<TenantId, Priority>;

// The more urgent of two wishes of one tenant stands.
inline void add_tenant(Tenants& tenants, const TenantId& tenant, Priority priority) {
  if (const auto found = tenants.find(tenant); found != tenants.end()) {
    found->second = std::min(found->second, priority);
    return;
  }
  if (tenants.size() >= kMaxTenants) {
    const auto warm_up =
        std::ranges::find(tenants, Priority::kWarmUp, &Tenants::value_type::second);
    if (priority == Priority::kWarmUp || warm_up == tenants.end()) return;
    tenants.erase(warm_up);
  }
  tenants.emplace(tenant, priority);
}

}  // namespace kiln
