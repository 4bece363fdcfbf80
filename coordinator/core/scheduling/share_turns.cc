#include "coordinator/core/scheduling/share_turns.h"

#include <algorithm>

namespace kiln {

void ShareTurns::join(const ShareId& id) {
  Share& share = shares_[id];
  if (share.joined++ > 0) return;
  resting_.erase({share.clock_ms, id});
  share.clock_ms = std::max(share.clock_ms, clock_ms_);
  share.since = ++arrivals_;
  order_.emplace(share.clock_ms, share.since, id);
}

void ShareTurns::leave(const ShareId& id) {
  Share& share = shares_.at(id);
  if (--share.joined > 0) return;
  order_.erase({share.clock_ms, share.since, id});
  // Remembered until the others are as far: nobody gains by going away and coming back.
  resting_.emplace(share.clock_ms, id);
  forget_rested();
}

void ShareTurns::charge(const ShareId& id, double work_ms) {
  Share& share = shares_.at(id);
  order_.erase({share.clock_ms, share.since, id});
  // Whose clock is behind was next and refused what the server had: it does not claim that now.
  clock_ms_ = std::max(clock_ms_, share.clock_ms);
  share.clock_ms = clock_ms_ + work_ms;
  share.since = ++arrivals_;  // behind those of an equal clock
  order_.emplace(share.clock_ms, share.since, id);
  forget_rested();
}

void ShareTurns::forget_rested() {
  while (!resting_.empty() && resting_.begin()->first <= clock_ms_) {
    shares_.erase(resting_.begin()->second);
    resting_.erase(resting_.begin());
  }
}

}  // namespace kiln
