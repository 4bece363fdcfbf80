#include "coordinator/status/history.h"

#include <algorithm>
#include <string_view>

namespace kiln {
namespace {

constexpr int64_t kMinuteMs = 60'000;
constexpr double kLongestStepS = 5;              // beyond, nobody knows what workers did meanwhile
constexpr std::string_view kTelling = "-iwbdq";  // a span has the last of its seconds' letters

void push(std::deque<Sample>& samples, const Sample& sample, size_t most) {
  samples.push_back(sample);
  if (samples.size() > most) samples.pop_front();
}

char letter_of(const WorkerStats& worker) {
  if (worker.state == "quarantined") return 'q';
  if (worker.state == "draining") return 'd';
  if (worker.leases == 0) return 'i';
  return worker.waiting.empty() ? 'b' : 'w';
}

}  // namespace

void History::add(int64_t at_ms, const Stats& stats) {
  Sample sample{at_ms,
                stats.hits,
                stats.joined,
                stats.misses,
                stats.candidates_measured,
                stats.flights_open,
                stats.candidates_queued,
                static_cast<int64_t>(stats.workers.size()),
                0};
  const double step_s = seconds_.empty()
                            ? 0
                            : std::clamp(static_cast<double>(at_ms - seconds_.back().at_ms) / 1000,
                                         0.0, kLongestStepS);
  for (const WorkerStats& worker : stats.workers) {
    if (worker.leases == 0) continue;
    ++sample.busy_workers;
    busy_s_[worker.target.backend == Backend::kCuda ? 1 : 0] += step_s;
  }
  push(seconds_, sample, kSeconds);
  if (minutes_.empty() || at_ms - minutes_.back().at_ms >= kMinuteMs)
    push(minutes_, sample, kMinutes);
  add_spans(stats);
  if (span_from_ms_ == 0) span_from_ms_ = at_ms;
  if (at_ms - span_from_ms_ >= kSpanMs) {
    end_span();
    span_from_ms_ = at_ms;
  }
}

void History::add_spans(const Stats& stats) {
  for (const WorkerStats& worker : stats.workers) {
    if (span_.size() >= kMaxWorkers && !span_.contains(worker.name)) continue;
    char& letter = span_.try_emplace(worker.name, '-').first->second;
    const char now = letter_of(worker);
    if (kTelling.find(now) > kTelling.find(letter)) letter = now;
  }
}

// A worker that was not seen for as long as the strip is has none any more.
void History::end_span() {
  for (const auto& [name, letter] : span_)
    if (strips_.size() < kMaxWorkers) strips_.try_emplace(name);
  for (auto& [name, strip] : strips_) {
    const auto found = span_.find(name);
    strip += found == span_.end() ? '-' : found->second;
    if (strip.size() > kSpans) strip.erase(0, 1);
  }
  std::erase_if(strips_, [](const auto& each) {
    return each.second.find_first_not_of('-') == std::string::npos;
  });
  span_.clear();
}

}  // namespace kiln
