// Verdict, Measurement, TuningRecord: the outcome of trying a candidate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler_core/base/digest.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

// Persisted; never renumbered. Terminal verdicts follow from the candidate itself and are
// remembered with it; transient ones may go away elsewhere.
enum class Verdict : uint8_t {
  kOk = 1,
  kCompileFailed = 2,  // terminal
  kWrongResult = 3,    // terminal
  kOutOfBounds = 4,    // terminal: wrote into a guard zone
  kTimedOut = 5,       // terminal after retries elsewhere
  kRunnerDied = 6,     // transient: crash or kill
  kDeviceLost = 7,     // transient
};
std::string_view to_string(Verdict verdict);
Result<Verdict> parse_verdict(std::string_view name);
// True for what another try cannot change: ok, and the verdicts marked terminal. kTimedOut is
// false: the caller that retries counts the tries.
bool is_terminal(Verdict verdict);

struct Measurement {
  std::vector<double> samples_us;             // in the order taken, all of them
  double median_us() const;                   // 0 when empty
  double spread_us() const;                   // interquartile range
  double quantile_us(double fraction) const;  // interpolated; 0 when empty
};

struct TuningRecord {
  Digest kernel_key;
  Digest workload;
  Target target;  // as the worker describes its device
  Schedule schedule;
  Verdict verdict = Verdict::kOk;
  std::string log;  // why, where not ok; where ok, a GPU kernel's CubinResources; at most 4 KiB
  Measurement measurement;
  Digest binary;            // zero when nothing was compiled
  std::string worker;       // that took it
  std::string owner{};      // whose key the worker had; empty: there were none, or it is not known
  int64_t taken_at_ms = 0;  // Unix time
  uint64_t seed = 0;        // of the random inputs
  // Time of the calibration kernel on that device, by which times from several devices of one model
  // are compared; 0: it had not been read, or the record is older than this field.
  double sentinel_us = 0;
  // The version that the schedule's template had then; times of one version say nothing of another.
  // 0: the record is older than this field.
  int template_version = 0;
};

// Thresholds of racing (race.h). Part of the KernelKey.
struct MeasurementPolicy {
  int screen_runs = 3;  // verify, then this many; beyond screen_drop x incumbent: dropped
  double screen_drop = 2.0;
  int race_runs = 20;
  double race_drop = 1.15;
  int finalists = 4;
  int final_runs = 40;  // interleaved
  double tie = 0.01;    // closer than this keeps the incumbent
  int64_t launch_timeout_ms = 10'000;
  void add_to(Hasher& hasher) const;
};

// KernelKey: WorkloadDigest, Target, mode, measurement policy. Which templates had candidates is
// said beside the winner (program/template_versions.h).
Digest kernel_key(const Digest& workload, const Target& target, Mode mode,
                  const MeasurementPolicy& policy);

}  // namespace kiln
