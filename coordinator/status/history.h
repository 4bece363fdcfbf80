// History: what a coordinator counted over time, bounded: the last ten minutes by the second, the
// last day by the minute; for each worker the last hour as a letter every fifteen seconds. Plain
// value; one thread, or a lock of its owner's.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "schema/messages.h"

namespace kiln {

// Counters as they stood at a time.
struct Sample {
  int64_t at_ms = 0;  // Unix time
  int64_t hits = 0, joined = 0, misses = 0;
  int64_t measured = 0;          // candidates
  int64_t open = 0, queued = 0;  // programs; candidates
  int64_t workers = 0, busy_workers = 0;
};

class History {
 public:
  static constexpr size_t kSeconds = 600, kMinutes = 1'440;
  static constexpr size_t kSpans = 240, kMaxWorkers = 4'096;
  static constexpr int64_t kSpanMs = 15'000;

  // About once a second, with times that do not go back.
  void add(int64_t at_ms, const Stats& stats);

  const std::deque<Sample>& seconds() const { return seconds_; }
  const std::deque<Sample>& minutes() const { return minutes_; }
  // Device time that workers had a lease, since the start, in seconds: of CPUs, of GPUs.
  double busy_cpu_s() const { return busy_s_[0]; }
  double busy_gpu_s() const { return busy_s_[1]; }
  // By worker, the oldest span first: b busy, w waiting for something (a lock), i idle, d draining,
  // q in quarantine, - not connected.
  const std::map<std::string, std::string>& strips() const { return strips_; }

 private:
  void add_spans(const Stats& stats);
  void end_span();

  std::deque<Sample> seconds_, minutes_;
  std::array<double, 2> busy_s_{};
  std::map<std::string, std::string> strips_;
  std::map<std::string, char> span_;  // of the span that goes on: its most telling letter
  int64_t span_from_ms_ = 0;
};

}  // namespace kiln
