#include "coordinator/core/worker_health.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace kiln {
namespace {

constexpr size_t kBaselineReadings = 5;
constexpr int kReadings = 3;  // in a row: one may be chance

}  // namespace

void WorkerHealth::saw(int64_t now_ms, double sentinel_us, int device_errors,
                       const CoreOptions& options) {
  if (device_errors_ >= 0 && device_errors > device_errors_) {
    errs_ = true;
    fault_ms_ = now_ms;
    reason_ = fmt::format("its device failed: {} faults since the worker started", device_errors);
  }
  device_errors_ = device_errors;
  // An equal value is the same reading, reported again.
  if (std::isfinite(sentinel_us) && sentinel_us > 0 && sentinel_us != sentinel_us_)
    read_sentinel(now_ms, sentinel_us, options);
  review(now_ms, options);
}

void WorkerHealth::read_sentinel(int64_t now_ms, double sentinel_us, const CoreOptions& options) {
  sentinel_us_ = sentinel_us;
  if (first_us_.size() < kBaselineReadings) {
    first_us_.push_back(sentinel_us);
    std::vector<double> sorted = first_us_;
    std::sort(sorted.begin(), sorted.end());
    baseline_us_ = sorted[sorted.size() / 2];
    if (first_us_.size() < kBaselineReadings) return;
  }
  const double drift = sentinel_us / baseline_us_ - 1;
  const bool bad = std::fabs(drift) > options.sentinel_drift;
  bad_in_a_row_ = bad ? bad_in_a_row_ + 1 : 0;
  good_in_a_row_ = bad ? 0 : good_in_a_row_ + 1;
  if (!bad) return;
  if (drifts_ || bad_in_a_row_ >= kReadings) {
    drifts_ = true;
    bad_ms_ = now_ms;
    if (!errs_)
      reason_ = fmt::format("its sentinel drifted by {:+.0f} % ({:.1f} us, {:.1f} at first)",
                            100 * drift, sentinel_us, baseline_us_);
  }
}

void WorkerHealth::review(int64_t now_ms, const CoreOptions& options) {
  if (errs_ && now_ms - fault_ms_ >= options.quarantine_ms) errs_ = false;
  const bool steady = good_in_a_row_ >= kReadings && now_ms - bad_ms_ >= options.quarantine_ms;
  if (drifts_ && steady) drifts_ = false;
  if (!errs_ && !drifts_) reason_.clear();
}

}  // namespace kiln
