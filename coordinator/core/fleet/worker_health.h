// WorkerHealth: whether a worker's device can be trusted, judged from its reports. The device errs
// when device faults were added since the first report. It drifts when three readings of the
// calibration kernel in a row are off the worker's own baseline, the median of its first five.
// Plain value; one thread.
//
//   good --a device fault, or 3 bad readings (saw)--> bad
//   bad  --no fault or bad reading for quarantine_ms, and after drift 3 good ones (review)--> good
//   bad  --faster than its baseline for quarantine_ms, and steadily so--> good, with a new baseline
//
// The last transition mends a baseline taken while something slowed the device: a healthy device is
// never faster than healthy. A device that stays slower stays bad until its worker restarts.
#pragma once

#include <string>
#include <vector>

#include "coordinator/core/events.h"

namespace kiln {

class WorkerHealth {
 public:
  // Takes a report. `sentinel_us`: its latest calibration time (a median); 0: not measured.
  void saw(int64_t now_ms, double sentinel_us, int device_errors, const CoreOptions& options);
  // A device could not load what the worker's compiler made: as bad as a fault of its own.
  void built_badly(int64_t now_ms);
  void review(int64_t now_ms, const CoreOptions& options);

  bool errs() const { return errs_; }
  bool drifts() const { return drifts_; }
  double sentinel_us() const { return sentinel_us_; }
  double baseline_us() const { return baseline_us_; }    // 0: not measured
  const std::string& reason() const { return reason_; }  // empty when good

 private:
  void read_calibration(int64_t now_ms, double sentinel_us, const CoreOptions& options);
  void take_baseline(std::vector<double> readings_us);
  bool outdoes_baseline(int64_t now_ms, double sentinel_us, const CoreOptions& options);

  double sentinel_us_ = 0;
  double baseline_us_ = 0;
  std::vector<double> first_us_;
  std::vector<double> faster_us_;  // the latest readings, all faster than the baseline by a drift
  int64_t faster_since_ms_ = 0;
  int bad_in_a_row_ = 0, good_in_a_row_ = 0;
  int device_errors_ = -1;             // -1: no report yet
  int64_t fault_ms_ = 0, bad_ms_ = 0;  // the last device fault, the last bad reading
  bool errs_ = false, drifts_ = false;
  std::string reason_;
};

}  // namespace kiln
