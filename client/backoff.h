// Backoff: how long to wait before asking an overloaded service again: at least what it says,
// twice as long each time, with jitter, so that clients that were refused together do not come back
// together. Pure: randomness comes in, and waiting is the caller's. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace kiln {

class Backoff {
 public:
  using Ms = std::chrono::milliseconds;
  explicit Backoff(uint64_t seed) : state_(seed) {}

  // Before the next try; `remaining`: until the caller's deadline. Nothing: not worth it any more,
  // after kMaxTries or because the wait would outlast the deadline. `retry_after`: what the service
  // said, 0 when nothing.
  std::optional<Ms> next(Ms retry_after, Ms remaining);

  static constexpr int kMaxTries = 8;
  static constexpr Ms kFirst{100}, kLongest{30'000};

 private:
  uint64_t state_;
  int tries_ = 0;
};

}  // namespace kiln
