#include "coordinator/status/miss_log.h"

namespace kiln {

void MissLog::add(Miss miss) {
  if (const auto found = places_.find(miss.program); found != places_.end()) {
    miss.times += found->second->times;
    miss.users.merge(found->second->users);
    misses_.erase(found->second);
  }
  while (miss.users.size() > kMostUsers) miss.users.erase(std::prev(miss.users.end()));
  misses_.push_front(std::move(miss));
  places_[misses_.front().program] = misses_.begin();
  if (misses_.size() <= kMost) return;
  places_.erase(misses_.back().program);
  misses_.pop_back();
}

const Miss* MissLog::find(const Digest& program) const {
  const auto found = places_.find(program);
  return found == places_.end() ? nullptr : &*found->second;
}

}  // namespace kiln
