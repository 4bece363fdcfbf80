// Outage: how long a store has answered no reads. A store that is away for moments, as while a
// standby of its database takes over, must not look empty: what it holds would be built and measured
// again. One that stays away is not waited for. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

namespace kiln {

class Outage {
 public:
  static constexpr int64_t kShortMs = 5'000;

  void over() {
    const std::scoped_lock lock(mu_);
    since_ms_.reset();
  }
  // After a read that the store did not answer, by a clock that only goes on: whether to ask again.
  bool may_pass(int64_t now_ms) {
    const std::scoped_lock lock(mu_);
    if (!since_ms_) since_ms_ = now_ms;
    return now_ms - *since_ms_ < kShortMs;
  }

 private:
  std::mutex mu_;
  std::optional<int64_t> since_ms_;  // guarded by mu_
};

}  // namespace kiln
