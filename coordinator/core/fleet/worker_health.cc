#include "coordinator/core/fleet/worker_health.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

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
    read_calibration(now_ms, sentinel_us, options);
  review(now_ms, options);
}

void WorkerHealth::read_calibration(int64_t now_ms, double sentinel_us,
                                    const CoreOptions& options) {
  sentinel_us_ = sentinel_us;
  if (first_us_.size() < kBaselineReadings) {
    first_us_.push_back(sentinel_us);
    take_baseline(first_us_);
    if (first_us_.size() < kBaselineReadings) return;
  }
  if (outdoes_baseline(now_ms, sentinel_us, options)) {
    take_baseline(std::exchange(faster_us_, {}));
    drifts_ = false;
    bad_in_a_row_ = 0;
    return;
  }
  const double drift = sentinel_us / baseline_us_ - 1;
  const bool bad = std::fabs(drift) > options.calibration_drift;
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

void WorkerHealth::take_baseline(std::vector<double> readings_us) {
  std::sort(readings_us.begin(), readings_us.end());
  baseline_us_ = readings_us[readings_us.size() / 2];
}

bool WorkerHealth::outdoes_baseline(int64_t now_ms, double sentinel_us,
                                    const CoreOptions& options) {
  if (sentinel_us >= baseline_us_ * (1 - options.calibration_drift)) {
    faster_us_.clear();
    return false;
  }
  if (faster_us_.empty()) faster_since_ms_ = now_ms;
  if (faster_us_.size() == kBaselineReadings) faster_us_.erase(faster_us_.begin());
  faster_us_.push_back(sentinel_us);
  const auto [least, most] = std::minmax_element(faster_us_.begin(), faster_us_.end());
  return faster_us_.size() == kBaselineReadings &&
         now_ms - faster_since_ms_ >= options.quarantine_ms &&
         *most <= *least * (1 + options.calibration_drift);
}

void WorkerHealth::built_badly(int64_t now_ms) {
  errs_ = true;
  fault_ms_ = now_ms;
  reason_ = "no device could load a binary that it built, and another worker's build of it loads";
}

void WorkerHealth::review(int64_t now_ms, const CoreOptions& options) {
  if (errs_ && now_ms - fault_ms_ >= options.quarantine_ms) errs_ = false;
  const bool steady = good_in_a_row_ >= kReadings && now_ms - bad_ms_ >= options.quarantine_ms;
  if (drifts_ && steady) drifts_ = false;
  if (!errs_ && !drifts_) reason_.clear();
}

}  // namespace kiln
