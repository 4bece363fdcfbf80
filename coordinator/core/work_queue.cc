#include "coordinator/core/work_queue.h"

#include <algorithm>

#include "coordinator/core/planted.h"

namespace kiln {
namespace {

size_t index_of(Priority priority) {
  return priority == Priority::kWarmUp ? 1 : 0;
}

std::string name_of(const Target& target) {
  return target.to_string() + " " + target.toolkit;
}

}  // namespace

void WorkQueue::add(const Target& target, const Demand& demand, const Digest& kernel) {
  if (demand.empty()) return remove(kernel);
  const auto [entry, is_new] = member_of_.try_emplace(kernel);
  Member& member = entry->second;
  if (is_new) {
    member.target = name_of(target);
    lanes_[member.target].target = target;
  }
  std::vector<ShareId> gone;
  for (const auto& [id, place] : member.places) {
    const auto wanted = demand.find(id);
    if (wanted == demand.end() || wanted->second != place.first) gone.push_back(id);
  }
  for (const auto& [id, priority] : demand)
    if (!member.places.contains(id)) join(member.target, id, priority, kernel, member);
  for (const ShareId& id : gone) {
    const auto [priority, place] = member.places.at(id);
    member.places.erase(id);
    leave(member.target, id, priority, place);
    if (const auto wanted = demand.find(id); wanted != demand.end())
      join(member.target, id, wanted->second, kernel, member);
  }
}

void WorkQueue::join(const std::string& target, const ShareId& id, Priority priority,
                     const Digest& kernel, Member& member) {
  const auto [found, is_new] = shares_.try_emplace(id);
  Share& share = found->second;
  if (share.lanes.empty()) {
    resting_.erase({share.clock_ms, id});
    share.clock_ms = std::max(share.clock_ms, clock_ms_);
    share.since = ++arrivals_;
  }
  Lane& lane = lanes_.at(target).of_priority[index_of(priority)];
  Ring& ring = lane.rings[id];
  if (ring.empty()) {
    lane.order.insert(share.turn(id));
    share.lanes.emplace(target, priority);
  }
  member.places[id] = {priority, ring.insert(ring.end(), kernel)};
}

void WorkQueue::leave(const std::string& target, const ShareId& id, Priority priority,
                      Ring::iterator place) {
  Lane& lane = lanes_.at(target).of_priority[index_of(priority)];
  Share& share = shares_.at(id);
  const auto ring = lane.rings.find(id);
  ring->second.erase(place);
  if (!ring->second.empty()) return;
  lane.rings.erase(ring);
  lane.order.erase(share.turn(id));
  share.lanes.erase({target, priority});
  // Remembered until the others are as far: nobody gains by going away and coming back.
  if (share.lanes.empty()) resting_.emplace(share.clock_ms, id);
}

void WorkQueue::remove(const Digest& kernel) {
  const auto member = member_of_.find(kernel);
  if (member == member_of_.end()) return;
  for (const auto& [id, place] : member->second.places)
    leave(member->second.target, id, place.first, place.second);
  TargetLanes& lanes = lanes_.at(member->second.target);
  if (lanes.of_priority[0].rings.empty() && lanes.of_priority[1].rings.empty())
    lanes_.erase(member->second.target);
  member_of_.erase(member);
  forget_rested();
}

bool WorkQueue::waits(const Target& device, Priority priority) const {
  return std::any_of(lanes_.begin(), lanes_.end(), [&](const auto& named) {
    return !named.second.of_priority[index_of(priority)].rings.empty() &&
           (device.can_run(named.second.target) || planted(PlantedBug::kLeaseAnywhere));
  });
}

bool WorkQueue::has_work_for(const Target& device) const {
  return waits(device, Priority::kInteractive) || waits(device, Priority::kWarmUp);
}

std::vector<Target> WorkQueue::targets() const {
  std::vector<Target> targets;
  for (const auto& [name, lanes] : lanes_) targets.push_back(lanes.target);
  return targets;
}

bool WorkQueue::serve_next(const Target& device,
                           const std::function<double(const Digest&)>& serve) {
  const bool warm_up_waits = waits(device, Priority::kWarmUp);
  const bool its_turn =
      warm_up_waits && before_warm_up_ + 1 >= warm_up_turn_ && !planted(PlantedBug::kStarveWarmUp);
  if (its_turn && serve_priority(device, Priority::kWarmUp, serve)) {
    before_warm_up_ = 0;
    return true;
  }
  if (serve_priority(device, Priority::kInteractive, serve)) {
    before_warm_up_ += warm_up_waits;
    return true;
  }
  return warm_up_waits && !its_turn && serve_priority(device, Priority::kWarmUp, serve);
}

// Merges the orders of the lanes that the device can run.
bool WorkQueue::serve_priority(const Target& device, Priority priority,
                               const std::function<double(const Digest&)>& serve) {
  struct Head {
    Lane* lane;
    std::set<Turn>::iterator next;
  };
  std::vector<Head> heads;
  for (auto& [name, lanes] : lanes_) {
    Lane& lane = lanes.of_priority[index_of(priority)];
    const bool fits = device.can_run(lanes.target) || planted(PlantedBug::kLeaseAnywhere);
    if (!lane.order.empty() && fits) heads.push_back({&lane, lane.order.begin()});
  }
  while (!heads.empty()) {
    const auto head = std::min_element(
        heads.begin(), heads.end(), [](const Head& a, const Head& b) { return *a.next < *b.next; });
    const ShareId id = std::get<ShareId>(*head->next);
    if (serve_ring(*head->lane, id, serve)) return true;
    if (++head->next == head->lane->order.end()) heads.erase(head);
  }
  return false;
}

bool WorkQueue::serve_ring(Lane& lane, const ShareId& id,
                           const std::function<double(const Digest&)>& serve) {
  Ring& ring = lane.rings.at(id);
  for (auto kernel = ring.begin(); kernel != ring.end(); ++kernel) {
    const double work_ms = serve(*kernel);
    if (work_ms <= 0) continue;
    ring.splice(ring.end(), ring, kernel);
    charge(id, work_ms);
    return true;
  }
  return false;
}

void WorkQueue::charge(const ShareId& id, double work_ms) {
  if (planted(PlantedBug::kFirstComeFirstServed)) return;
  Share& share = shares_.at(id);
  clock_ms_ = std::max(clock_ms_, share.clock_ms);
  const Turn before = share.turn(id);
  share.clock_ms += work_ms;
  share.since = ++arrivals_;  // behind those of an equal clock
  for (const auto& [target, priority] : share.lanes) {
    std::set<Turn>& order = lanes_.at(target).of_priority[index_of(priority)].order;
    order.erase(before);
    order.insert(share.turn(id));
  }
  forget_rested();
}

void WorkQueue::forget_rested() {
  while (!resting_.empty() && resting_.begin()->first <= clock_ms_) {
    shares_.erase(resting_.begin()->second);
    resting_.erase(resting_.begin());
  }
}

}  // namespace kiln
