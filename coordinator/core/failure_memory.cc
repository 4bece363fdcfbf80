#include "coordinator/core/failure_memory.h"

namespace kiln {

void FailureMemory::remember(int64_t now_ms, const Digest& key, Error error) {
  forget_old(now_ms);
  if (capacity_ <= 0 || errors_.contains(key)) return;
  if (std::ssize(oldest_first_) >= capacity_) {
    errors_.erase(oldest_first_.front());
    oldest_first_.pop_front();
  }
  errors_.emplace(key, Failure{std::move(error), now_ms});
  oldest_first_.push_back(key);
}

const Error* FailureMemory::find(int64_t now_ms, const Digest& key) {
  forget_old(now_ms);
  const auto found = errors_.find(key);
  return found == errors_.end() ? nullptr : &found->second.error;
}

void FailureMemory::forget_old(int64_t now_ms) {
  while (!oldest_first_.empty()) {
    const auto oldest = errors_.find(oldest_first_.front());
    if (now_ms - oldest->second.at_ms < keep_ms_) return;
    errors_.erase(oldest);
    oldest_first_.pop_front();
  }
}

}  // namespace kiln
