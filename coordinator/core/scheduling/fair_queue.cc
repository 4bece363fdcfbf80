#include "coordinator/core/scheduling/fair_queue.h"

#include <algorithm>

namespace kiln {

void FairQueue::join(const TenantId& id) {
  Tenant& tenant = tenants_[id];
  if (tenant.joined++ > 0) return;
  resting_.erase({tenant.clock_ms, id});
  tenant.clock_ms = std::max(tenant.clock_ms, clock_ms_);
  tenant.since = ++arrivals_;
  order_.emplace(tenant.clock_ms, tenant.since, id);
}

void FairQueue::leave(const TenantId& id) {
  Tenant& tenant = tenants_.at(id);
  if (--tenant.joined > 0) return;
  order_.erase({tenant.clock_ms, tenant.since, id});
  // Remembered until the others are as far: nobody gains by going away and coming back.
  resting_.emplace(tenant.clock_ms, id);
  forget_rested();
}

void FairQueue::charge(const TenantId& id, double work_ms) {
  Tenant& tenant = tenants_.at(id);
  order_.erase({tenant.clock_ms, tenant.since, id});
  // Tenants whose clock is behind were offered a turn before and could not use it: they have no
  // claim on it now.
  clock_ms_ = std::max(clock_ms_, tenant.clock_ms);
  tenant.clock_ms = clock_ms_ + work_ms;
  tenant.since = ++arrivals_;  // behind those of an equal clock
  order_.emplace(tenant.clock_ms, tenant.since, id);
  forget_rested();
}

void FairQueue::forget_rested() {
  while (!resting_.empty() && resting_.begin()->first <= clock_ms_) {
    tenants_.erase(resting_.begin()->second);
    resting_.erase(resting_.begin());
  }
}

}  // namespace kiln
