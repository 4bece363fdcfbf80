// WorkerStatus: what a worker is, does and has done, as its HTTP port shows it. Plain values; the
// agent counts and gives out copies.
#pragma once

#include <array>
#include <chrono>
#include <string>
#include <string_view>

#include "schema/messages.h"
#include "schema/metrics/histogram.h"
#include "schema/metrics/http_port.h"
#include "schema/tracing/otlp/span_exporter.h"

namespace kiln {

inline constexpr std::array kVerdicts = {
    Verdict::kOk,       Verdict::kCompileFailed, Verdict::kWrongResult, Verdict::kOutOfBounds,
    Verdict::kTimedOut, Verdict::kRunnerDied,    Verdict::kDeviceLost};

// Counts of candidates since the worker started, also those whose lease was taken back meanwhile.
struct CandidateTally {
  std::array<int64_t, kVerdicts.size()> by_verdict{};  // as in kVerdicts
  int64_t compiled = 0;                                // a compiler ran
  Histogram compile{work_bounds_s()}, verify{work_bounds_s()}, measure{work_bounds_s()};

  void count(const CandidateResult& result);
};

struct WorkerStatus {
  using Clock = std::chrono::steady_clock;
  WorkerReport self;  // name, target, toolkit, slots, health; no leases, no results
  std::string coordinator;
  bool connected = false;
  std::string trouble;          // why not connected; empty before the first try
  int64_t connections = 0;      // since the start
  Clock::time_point turned{};   // when the agent last went round: every few seconds at the latest
  size_t leases = 0, held = 0;  // at work; results that are not yet known to be stored
  bool draining = false;
  CandidateTally candidates;
  SpanExporter::Counts spans{};  // of traces
};

// The pages of a worker's HTTP port:
//   /metrics  Prometheus text.
//   /healthz  200 while the agent goes round; 503 when it has not for half a minute: restart it.
//   /readyz   200 while it takes work: connected to its coordinator and not draining.
HttpAnswer worker_page(const WorkerStatus& status, WorkerStatus::Clock::time_point now,
                       std::string_view path);

}  // namespace kiln
