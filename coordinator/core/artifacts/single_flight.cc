#include "coordinator/core/artifacts/single_flight.h"

#include <algorithm>
#include <utility>

namespace kiln {
namespace {

using Kind = SingleFlight::Verdict::Kind;

void count_down(std::unordered_map<std::string, size_t>& counts, const std::string& name) {
  const auto found = counts.find(name);
  if (found != counts.end() && --found->second == 0) counts.erase(found);
}

}  // namespace

bool SingleFlight::may_lease(const std::string& connection) const {
  const auto found = leases_of_.find(connection);
  return artifact_of_.size() < kMaxLeases &&
         (found == leases_of_.end() || found->second < kMaxLeasesEach);
}

SingleFlight::Verdict SingleFlight::hold(int64_t now_ms, Flight& flight,
                                         const std::string& artifact, const Asker& asker,
                                         int64_t lease_ms) {
  flight.holder = asker;
  flight.lease = ++last_lease_;
  flight.until_ms = now_ms + lease_ms;
  artifact_of_.emplace(flight.lease, artifact);
  ++leases_of_[asker.connection];
  return {asker, Kind::kMakeIt, flight.lease};
}

void SingleFlight::let_go(const Flight& flight) {
  artifact_of_.erase(flight.lease);
  count_down(leases_of_, flight.holder.connection);
}

SingleFlight::Verdicts SingleFlight::missed(int64_t now_ms, const std::string& artifact,
                                            const Asker& asker, int64_t wait_ms, int64_t lease_ms) {
  const auto found = flights_.find(artifact);
  if (found == flights_.end()) {
    if (lease_ms <= 0 || !may_lease(asker.connection)) return {{asker, Kind::kMiss}};
    return {hold(now_ms, flights_[artifact], artifact, asker, lease_ms)};
  }
  Flight& flight = found->second;
  if (flight.holder.connection == asker.connection) {
    if (lease_ms > 0) flight.until_ms = now_ms + lease_ms;
    return {{asker, Kind::kMakeIt, flight.lease}};
  }
  if (wait_ms <= 0 || waits_ >= kMaxWaits) return {{asker, Kind::kHeld}};
  flight.waiters.push_back({asker, now_ms + wait_ms, lease_ms});
  ++waits_;
  ++waits_of_[asker.connection];
  return {};
}

SingleFlight::Verdicts SingleFlight::stored(const std::string& artifact) {
  const auto found = flights_.find(artifact);
  if (found == flights_.end()) return {};
  Verdicts verdicts;
  for (Waiter& waiter : found->second.waiters) {
    count_down(waits_of_, waiter.asker.connection);
    verdicts.push_back({std::move(waiter.asker), Kind::kLookAgain});
  }
  waits_ -= found->second.waiters.size();
  let_go(found->second);
  flights_.erase(found);
  return verdicts;
}

void SingleFlight::pass_on(int64_t now_ms, Flights::iterator found, Verdicts& verdicts) {
  Flight& flight = found->second;
  let_go(flight);
  const auto next = std::ranges::find_if(flight.waiters, [this](const Waiter& waiter) {
    return waiter.lease_ms > 0 && may_lease(waiter.asker.connection);
  });
  if (next != flight.waiters.end()) {
    const Waiter chosen = *next;
    flight.waiters.erase(next);
    --waits_;
    count_down(waits_of_, chosen.asker.connection);
    verdicts.push_back(hold(now_ms, flight, found->first, chosen.asker, chosen.lease_ms));
    return;
  }
  for (Waiter& waiter : flight.waiters) {
    count_down(waits_of_, waiter.asker.connection);
    verdicts.push_back({std::move(waiter.asker), Kind::kMiss});
  }
  waits_ -= flight.waiters.size();
  flights_.erase(found);
}

SingleFlight::Verdicts SingleFlight::release(int64_t now_ms, uint64_t lease,
                                             const std::string& user) {
  const auto artifact = artifact_of_.find(lease);
  if (artifact == artifact_of_.end()) return {};
  const auto flight = flights_.find(artifact->second);
  Verdicts verdicts;
  if (flight->second.holder.user == user) pass_on(now_ms, flight, verdicts);
  return verdicts;
}

SingleFlight::Verdicts SingleFlight::gone(int64_t now_ms, const std::string& connection) {
  if (!leases_of_.contains(connection) && !waits_of_.contains(connection)) return {};
  Verdicts verdicts;
  for (auto& [artifact, flight] : flights_)
    waits_ -= std::erase_if(flight.waiters, [&](const Waiter& waiter) {
      return waiter.asker.connection == connection;
    });
  waits_of_.erase(connection);
  for (auto flight = flights_.begin(); flight != flights_.end();) {
    const auto at = flight++;  // the others stay where they are
    if (at->second.holder.connection == connection) pass_on(now_ms, at, verdicts);
  }
  return verdicts;
}

SingleFlight::Verdicts SingleFlight::expire(int64_t now_ms) {
  Verdicts verdicts;
  for (auto flight = flights_.begin(); flight != flights_.end();) {
    const auto at = flight++;
    std::deque<Waiter>& waiters = at->second.waiters;
    for (const Waiter& waiter : waiters)
      if (waiter.until_ms <= now_ms) {
        verdicts.push_back({waiter.asker, Kind::kHeld});
        count_down(waits_of_, waiter.asker.connection);
      }
    waits_ -=
        std::erase_if(waiters, [&](const Waiter& waiter) { return waiter.until_ms <= now_ms; });
    if (at->second.until_ms <= now_ms) pass_on(now_ms, at, verdicts);
  }
  return verdicts;
}

}  // namespace kiln
