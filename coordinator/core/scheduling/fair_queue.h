// FairQueue: the order in which the tenants that wait for one server are served, so that they get
// equal amounts of its work: start-time fair queueing (Goyal, Vin, Cheng 1996). Each tenant has a
// clock that advances by the work it got; the tenant with the lowest clock is next; one that
// arrives or returns starts where the others are. O(log n) a step. Plain value; one thread.
#pragma once

#include <cstdint>
#include <set>
#include <tuple>
#include <unordered_map>

#include "coordinator/core/events.h"

namespace kiln {

class FairQueue {
 public:
  using Turn = std::tuple<double, uint64_t, TenantId>;  // clock, arrival number, tenant

  // Counted: a tenant waits until it has left as often as it joined.
  void join(const TenantId& id);
  void leave(const TenantId& id);  // REQUIRES: it waits
  // The tenant was served this much work. REQUIRES: it waits.
  void charge(const TenantId& id, double work_ms);
  const std::set<Turn>& order() const { return order_; }  // the waiting tenants, the next one first

 private:
  struct Tenant {
    double clock_ms = 0;
    uint64_t since = 0;
    int joined = 0;
  };
  void forget_rested();

  std::unordered_map<TenantId, Tenant> tenants_;
  std::set<Turn> order_;
  std::set<std::pair<double, TenantId>> resting_;  // not waiting, with clocks ahead of clock_ms_
  double clock_ms_ = 0;                            // of the tenant served last, before the charge
  uint64_t arrivals_ = 0;
};

}  // namespace kiln
