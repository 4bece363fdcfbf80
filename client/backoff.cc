#include "client/backoff.h"

#include <algorithm>
#include <random>

namespace kiln {

std::optional<Backoff::Ms> Backoff::next(Ms retry_after, Ms remaining) {
  if (tries_ >= kMaxTries) return std::nullopt;
  // At least `retry_after`, plus a random part of a span that doubles with every try.
  const Ms floor = std::clamp(retry_after, Ms(0), kLongest);
  const Ms span = std::min(kLongest, std::max(kFirst, floor) * (1 << tries_));
  ++tries_;
  std::mt19937_64 random(state_);
  state_ = random();
  const Ms wait = floor + Ms(static_cast<int64_t>(state_ % static_cast<uint64_t>(span.count())));
  if (wait >= remaining) return std::nullopt;
  return wait;
}

}  // namespace kiln
