#include "coordinator/core/work_queue.h"

#include <algorithm>
#include <vector>

namespace kiln {

void WorkQueue::add(const Target& target, const std::string& owner, const Digest& kernel) {
  RingId id{target.to_string(), owner};
  if (!member_of_.emplace(kernel, id).second) return;
  const auto [entry, is_new] = rings_.try_emplace(std::move(id));
  Ring& ring = entry->second;
  ring.turn.push_back(kernel);
  if (!is_new) return;
  ring.target = target;
  ring.served = ++turns_;  // behind those who wait already
}

void WorkQueue::remove(const Digest& kernel) {
  const auto member = member_of_.find(kernel);
  if (member == member_of_.end()) return;
  const auto ring = rings_.find(member->second);
  member_of_.erase(member);
  std::erase(ring->second.turn, kernel);
  if (ring->second.turn.empty()) rings_.erase(ring);
}

bool WorkQueue::serve_next(const Target& device, const std::function<bool(const Digest&)>& serve) {
  std::vector<Ring*> rings;
  for (auto& [id, ring] : rings_)
    if (device.can_run(ring.target)) rings.push_back(&ring);
  std::sort(rings.begin(), rings.end(),
            [](const Ring* a, const Ring* b) { return a->served < b->served; });
  for (Ring* ring : rings) {
    for (auto it = ring->turn.begin(); it != ring->turn.end(); ++it) {
      const Digest kernel = *it;
      if (!serve(kernel)) continue;
      ring->served = ++turns_;
      ring->turn.erase(it);
      ring->turn.push_back(kernel);
      return true;
    }
  }
  return false;
}

}  // namespace kiln
