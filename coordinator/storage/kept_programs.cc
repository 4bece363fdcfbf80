#include "coordinator/storage/kept_programs.h"

#include <algorithm>
#include <utility>

namespace kiln {

void KeptPrograms::keep(int64_t now_ms, const Digest& program) {
  Kept& kept = kept_[program];
  kept.wait_ms = std::min(kept.wait_ms == 0 ? kFirstMs : 2 * kept.wait_ms, kLongestMs);
  kept.due_ms = now_ms + kept.wait_ms;
  kept.given_up = false;
  if (kept_.size() <= kMost) return;
  const auto first =
      std::ranges::min_element(kept_, {}, [](const auto& entry) { return entry.second.due_ms; });
  too_many_.push_back(first->first);
  kept_.erase(first);
}

void KeptPrograms::end_waits(int64_t now_ms) {
  for (auto& [program, kept] : kept_) {
    if (kept.given_up) continue;
    kept.due_ms = std::min(kept.due_ms, now_ms);
    kept.wait_ms = kFirstMs;
  }
}

std::vector<Digest> KeptPrograms::take_due(int64_t now_ms) {
  std::vector<Digest> due = std::exchange(too_many_, {});
  for (auto& [program, kept] : kept_)
    if (kept.due_ms <= now_ms && !std::exchange(kept.given_up, true)) due.push_back(program);
  std::erase_if(kept_, [now_ms](const auto& entry) {
    const Kept& kept = entry.second;
    return kept.given_up && kept.due_ms + kept.wait_ms <= now_ms;
  });
  return due;
}

}  // namespace kiln
