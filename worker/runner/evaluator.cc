#include "worker/runner/evaluator.h"

#include <chrono>

namespace kiln::runner {

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mu_);
    over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Heartbeat::beat(const Alive& alive) {
  constexpr std::chrono::milliseconds kPeriod(kProgressPeriodMs);
  std::unique_lock lock(mu_);
  while (!changed_.wait_for(lock, kPeriod, [this] { return over_; })) alive();
}

Digest key_of(const OpenWorkload& request) {
  return Hasher("kiln.runner.workload.v1")
      .add(request.graph_text)
      .add(static_cast<int64_t>(request.seed))
      .finish();
}

}  // namespace kiln::runner
