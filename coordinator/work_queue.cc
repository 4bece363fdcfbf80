#include "coordinator/work_queue.h"

#include <algorithm>
#include <vector>

namespace kiln {

void WorkQueue::add(const Target& target, const Digest& kernel) {
  Ring& ring = rings_[target.to_string()];
  ring.target = target;
  if (ring.members.insert(kernel).second) ring.turn.push_back(kernel);
}

void WorkQueue::remove(const Target& target, const Digest& kernel) {
  const auto found = rings_.find(target.to_string());
  if (found == rings_.end() || found->second.members.erase(kernel) == 0) return;
  std::erase(found->second.turn, kernel);
  if (found->second.members.empty()) rings_.erase(found);
}

bool WorkQueue::serve_next(const Target& device, const std::function<bool(const Digest&)>& serve) {
  std::vector<Ring*> rings;
  for (auto& [name, ring] : rings_)
    if (device.can_run(ring.target)) rings.push_back(&ring);
  std::stable_sort(rings.begin(), rings.end(),
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
