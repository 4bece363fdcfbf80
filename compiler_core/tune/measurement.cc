#include "compiler_core/tune/measurement.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

namespace kiln {
namespace {

// Doubles enter keys as their bits: equal policies are equal to the last one.
int64_t bits(double value) {
  return std::bit_cast<int64_t>(value);
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kCompileFailed:
      return "compile_failed";
    case Verdict::kWrongResult:
      return "wrong_result";
    case Verdict::kOutOfBounds:
      return "out_of_bounds";
    case Verdict::kTimedOut:
      return "timed_out";
    case Verdict::kRunnerDied:
      return "runner_died";
    case Verdict::kDeviceLost:
      return "device_lost";
  }
  return "unknown";
}

Result<Verdict> parse_verdict(std::string_view name) {
  for (int value = 1; value <= static_cast<int>(Verdict::kDeviceLost); ++value)
    if (name == to_string(static_cast<Verdict>(value))) return static_cast<Verdict>(value);
  return fail(Code::kInvalidArgument, fmt::format("'{}' is not a verdict", name.substr(0, 64)));
}

bool is_terminal(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
    case Verdict::kCompileFailed:
    case Verdict::kWrongResult:
    case Verdict::kOutOfBounds:
      return true;
    case Verdict::kTimedOut:
    case Verdict::kRunnerDied:
    case Verdict::kDeviceLost:
      return false;
  }
  return false;
}

double Measurement::quantile_us(double fraction) const {
  if (samples_us.empty()) return 0;
  std::vector<double> sorted = samples_us;
  std::sort(sorted.begin(), sorted.end());
  const double position = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double weight = position - static_cast<double>(below);
  return sorted[below] + (sorted[above] - sorted[below]) * weight;
}

double Measurement::median_us() const {
  return quantile_us(0.5);
}

double Measurement::spread_us() const {
  return quantile_us(0.75) - quantile_us(0.25);
}

void MeasurementPolicy::add_to(Hasher& hasher) const {
  hasher.add(int64_t{screen_runs})
      .add(bits(screen_drop))
      .add(int64_t{race_runs})
      .add(bits(race_drop))
      .add(int64_t{finalists})
      .add(int64_t{final_runs})
      .add(bits(tie))
      .add(launch_timeout_ms);
}

Digest kernel_key(const Digest& workload, const Target& target, Mode mode,
                  const MeasurementPolicy& policy) {
  Hasher hasher("kiln.kernel_key.v2");
  hasher.add(workload);
  target.add_to(hasher);
  hasher.add(to_string(mode));
  policy.add_to(hasher);
  return hasher.finish();
}

}  // namespace kiln
