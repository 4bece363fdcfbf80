// ServiceStatus: the state that the loop publishes and the HTTP thread reads. The loop never waits
// for a reader, and no reader touches the loop's own state. Thread-safe; a service and its HTTP
// port share one.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "schema/messages.h"
#include "schema/metrics/histogram.h"
#include "schema/tracing/otlp/span_exporter.h"

namespace kiln {

// The stages of a compile task, in order (core/requests/compile_task.h).
enum class TaskStage : uint8_t { kLookingUp, kWaitGraph, kPlanning, kTuning, kStoring };
inline constexpr size_t kTaskStages = 5;
std::string_view to_string(TaskStage stage);  // "looking_up", ...

std::map<std::string, int64_t> every_outcome();  // each 0

struct TaskTimes {
  Histogram total{work_bounds_s()};
  std::array<Histogram, kTaskStages> stages{Histogram(work_bounds_s()), Histogram(work_bounds_s()),
                                            Histogram(work_bounds_s()), Histogram(work_bounds_s()),
                                            Histogram(work_bounds_s())};
  // By "tuned", "joined", "abandoned" or the error's code. All are there from the start: Prometheus
  // sees no increase in a series that begins with its first event.
  std::map<std::string, int64_t> outcomes = every_outcome();
};

struct LoopTimes {
  Histogram from_memory{loop_bounds_s()};  // a look-up: from its receipt to its answer's sending
  Histogram from_index{loop_bounds_s()};   // the read of the index
  Histogram turn{loop_bounds_s()};         // without the waiting
};

struct StatusSnapshot {
  Stats stats;
  LoopTimes loop;
  TaskTimes tasks;
  int64_t graph_bytes_waiting = 0;  // texts that wait for a planner
  int64_t index_memory_bytes = 0;
  int64_t read_failures = 0;     // look-ups that the index did not answer
  std::string store_away{};      // what of the store does not answer, for people; empty: nothing
  int64_t detached_damaged = 0;  // queued programs whose rows could not be read
  std::map<std::string, int64_t> refusals{{"overloaded", 0}, {"permission_denied", 0}};  // by code
  SpanExporter::Counts spans{};  // of traces
};

class ServiceStatus {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Phase : uint8_t { kStarting, kFollowing, kServing, kStopping };

  void set_phase(Phase phase) { phase_ = phase; }
  Phase phase() const { return phase_; }

  // The loop: every tick that it turns, every second what it has counted.
  void turned(Clock::time_point now) { turned_ = now; }
  void publish(StatusSnapshot snapshot);

  // Seconds since the loop last turned; 0 before it began.
  double stalled_s(Clock::time_point now) const;
  // The last published snapshot; never null (zeros before the first).
  std::shared_ptr<const StatusSnapshot> latest() const;
  // The store has failed to write within the last `window`, as far as snapshots tell.
  bool store_failed_within(Clock::time_point now, Clock::duration window) const;

 private:
  std::atomic<Phase> phase_{Phase::kStarting};
  std::atomic<Clock::time_point> turned_{Clock::time_point{}};
  mutable std::mutex mutex_;
  std::shared_ptr<const StatusSnapshot> latest_ = std::make_shared<StatusSnapshot>();  // guarded
  Clock::time_point store_failed_{};                                                   // guarded
};

}  // namespace kiln
