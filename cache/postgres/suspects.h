// Suspects: objects of which their place says that they are not there, or gives other bytes than were
// put. A place that is wrong about that for a while (a bucket under another address, a proxy that
// answers for it, a restore) must cost nothing: what is believed has been said for long. Thread-safe.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <unordered_map>

namespace kiln {

class Suspects {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Suspects(std::chrono::milliseconds believed_after) : believed_after_(believed_after) {}

  // It was said of `object`; whether that has been so for long enough, whenever it was asked.
  bool accused(const std::string& object, Clock::time_point now) {
    const std::scoped_lock lock(mu_);
    if (since_.size() >= kMost && !since_.contains(object)) since_.clear();  // longer, then
    return now - since_.try_emplace(object, now).first->second >= believed_after_;
  }
  // It was read as it was put, or is of no use any more.
  void cleared(const std::string& object) {
    const std::scoped_lock lock(mu_);
    since_.erase(object);
  }

 private:
  static constexpr size_t kMost = 100'000;
  const std::chrono::milliseconds believed_after_;
  std::mutex mu_;
  std::unordered_map<std::string, Clock::time_point> since_;  // guarded by mu_
};

}  // namespace kiln
