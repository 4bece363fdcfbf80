#include "coordinator/core/scheduling/work_queue.h"

#include <algorithm>
#include <unordered_set>

#include "coordinator/core/fleet/worker_registry.h"
#include "coordinator/core/mutation.h"

namespace kiln {
namespace {

size_t index_of(Priority priority) {
  return priority == Priority::kWarmUp ? 1 : 0;
}

std::string name_of(const Target& target) {
  return target.to_string() + " " + target.toolkit;
}

constexpr size_t kMaxServers = 64;  // more device classes than that are somebody's mistake

}  // namespace

bool WorkQueue::fits(const Target& server, const Target& target) const {
  const bool fits = kind_ == Servers::kDevices ? server.can_run(target) : can_build(server, target);
  return fits || mutated(Mutation::kLeaseAnywhere);
}

// Work of the first task in the ring that takes any.
double WorkQueue::serve_ring(std::list<Digest>& ring,
                             const std::function<double(const Digest&)>& serve) {
  for (auto kernel = ring.begin(); kernel != ring.end(); ++kernel) {
    const double work_ms = serve(*kernel);
    if (work_ms <= 0) continue;
    if (kind_ == Servers::kDevices) ring.splice(ring.end(), ring, kernel);
    return work_ms;
  }
  return 0;
}

void WorkQueue::add(const Target& target, const Tenants& tenants, const Digest& kernel, Turn turn) {
  if (tenants.empty()) return remove(kernel);
  const auto [entry, is_new] = member_of_.try_emplace(kernel);
  Member& member = entry->second;
  if (is_new) {
    member.target = name_of(target);
    TargetLanes& lanes = lanes_[member.target];
    lanes.target = target;
    ++lanes.kernels;
  }
  std::vector<TenantId> gone;
  for (const auto& [id, place] : member.places) {
    const auto wanted = tenants.find(id);
    if (wanted == tenants.end() || wanted->second != place.first) gone.push_back(id);
  }
  for (const auto& [id, priority] : tenants)
    if (!member.places.contains(id)) join(member.target, id, priority, kernel, turn, member);
  for (const TenantId& id : gone) {
    const auto [priority, place] = member.places.at(id);
    member.places.erase(id);
    leave(member.target, id, priority, place);
    if (const auto wanted = tenants.find(id); wanted != tenants.end())
      join(member.target, id, wanted->second, kernel, turn, member);
  }
}

void WorkQueue::join(const std::string& target, const TenantId& id, Priority priority,
                     const Digest& kernel, Turn turn, Member& member) {
  TargetLanes& lanes = lanes_.at(target);
  Ring& ring = lanes.of_priority[index_of(priority)][id];
  if (ring.kernels.empty()) {
    ring.since = ++arrivals_;
    for (auto& [name, server] : servers_)
      if (fits(server.device, lanes.target)) server.of_priority[index_of(priority)].join(id);
  }
  const auto before = turn == Turn::kNext ? ring.kernels.begin() : ring.kernels.end();
  member.places[id] = {priority, ring.kernels.insert(before, kernel)};
}

void WorkQueue::leave(const std::string& target, const TenantId& id, Priority priority,
                      std::list<Digest>::iterator place) {
  TargetLanes& lanes = lanes_.at(target);
  Lane& lane = lanes.of_priority[index_of(priority)];
  const auto ring = lane.find(id);
  ring->second.kernels.erase(place);
  if (!ring->second.kernels.empty()) return;
  lane.erase(ring);
  for (auto& [name, server] : servers_)
    if (fits(server.device, lanes.target)) server.of_priority[index_of(priority)].leave(id);
}

void WorkQueue::remove(const Digest& kernel) {
  const auto member = member_of_.find(kernel);
  if (member == member_of_.end()) return;
  for (const auto& [id, place] : member->second.places)
    leave(member->second.target, id, place.first, place.second);
  TargetLanes& lanes = lanes_.at(member->second.target);
  --lanes.kernels;
  lanes.ms -= member->second.ms;
  if (lanes.of_priority[0].empty() && lanes.of_priority[1].empty())
    lanes_.erase(member->second.target);
  waiting_ -= member->second.waiting;
  member_of_.erase(member);
  if (member_of_.empty()) servers_.clear();  // all start anew
}

void WorkQueue::set_waiting(const Digest& kernel, int candidates, int elsewhere, double ms) {
  const auto member = member_of_.find(kernel);
  if (member == member_of_.end()) return;
  if (candidates + elsewhere == 0) return remove(kernel);
  waiting_ += candidates - member->second.waiting;
  lanes_.at(member->second.target).ms += ms - member->second.ms;
  member->second.waiting = candidates;
  member->second.ms = ms;
}

bool WorkQueue::waits(const Target& device, Priority priority) const {
  return std::any_of(lanes_.begin(), lanes_.end(), [&](const auto& named) {
    return !named.second.of_priority[index_of(priority)].empty() &&
           fits(device, named.second.target);
  });
}

bool WorkQueue::has_work_for(const Target& device) const {
  return waits(device, Priority::kInteractive) || waits(device, Priority::kWarmUp);
}

int WorkQueue::kernels_waiting(const Target& target) const {
  const auto lanes = lanes_.find(name_of(target));
  return lanes == lanes_.end() ? 0 : lanes->second.kernels;
}

double WorkQueue::ms_waiting(const Target& target) const {
  const auto lanes = lanes_.find(name_of(target));
  return lanes == lanes_.end() ? 0 : lanes->second.ms;
}

std::map<std::string, Target> WorkQueue::targets() const {
  std::map<std::string, Target> targets;
  for (const auto& [name, lanes] : lanes_) targets.emplace(name, lanes.target);
  return targets;
}

std::vector<Digest> WorkQueue::kernels_for(const Target& target) const {
  const auto lanes = lanes_.find(name_of(target));
  if (lanes == lanes_.end()) return {};
  std::vector<Digest> kernels;
  std::unordered_set<Digest> known;  // one that several tenants want is in each one's ring
  for (const Lane& lane : lanes->second.of_priority)
    for (const auto& [id, ring] : lane)
      for (const Digest& kernel : ring.kernels)
        if (known.insert(kernel).second) kernels.push_back(kernel);
  return kernels;
}

WorkQueue::Server& WorkQueue::server_of(const Target& device) {
  const std::string name = name_of(device);
  if (const auto known = servers_.find(name); known != servers_.end()) return known->second;
  if (servers_.size() >= kMaxServers) servers_.clear();
  Server& server = servers_[name];
  server.device = device;
  std::map<uint64_t, std::pair<size_t, TenantId>> waiting;  // by arrival
  for (const auto& [target, lanes] : lanes_)
    for (size_t i = 0; i < lanes.of_priority.size() && fits(device, lanes.target); ++i)
      for (const auto& [id, ring] : lanes.of_priority[i]) waiting[ring.since] = {i, id};
  for (const auto& [since, tenant] : waiting) server.of_priority[tenant.first].join(tenant.second);
  return server;
}

bool WorkQueue::serve_next(const Target& device,
                           const std::function<double(const Digest&)>& serve) {
  Server& server = server_of(device);
  const bool warm_up_waits = !server.of_priority[index_of(Priority::kWarmUp)].order().empty();
  const bool its_turn = warm_up_waits && server.before_warm_up + 1 >= warm_up_turn_ &&
                        !mutated(Mutation::kStarveWarmUp);
  if (its_turn && serve_priority(server, Priority::kWarmUp, serve)) {
    server.before_warm_up = 0;
    return true;
  }
  if (serve_priority(server, Priority::kInteractive, serve)) {
    server.before_warm_up += warm_up_waits;
    return true;
  }
  return warm_up_waits && !its_turn && serve_priority(server, Priority::kWarmUp, serve);
}

bool WorkQueue::serve_priority(Server& server, Priority priority,
                               const std::function<double(const Digest&)>& serve) {
  std::vector<Lane*> lanes;
  for (auto& [name, target] : lanes_)
    if (fits(server.device, target.target))
      lanes.push_back(&target.of_priority[index_of(priority)]);
  FairQueue& turns = server.of_priority[index_of(priority)];
  for (const auto& [clock_ms, since, id] : turns.order()) {
    for (Lane* lane : lanes) {
      const auto ring = lane->find(id);
      const double work_ms = ring == lane->end() ? 0 : serve_ring(ring->second.kernels, serve);
      if (work_ms <= 0) continue;
      if (!mutated(Mutation::kFirstComeFirstServed)) turns.charge(TenantId(id), work_ms);
      return true;
    }
  }
  return false;
}

}  // namespace kiln
