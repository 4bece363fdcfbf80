// SpanExporter: sends spans to a collector, on a thread of its own. Whoever adds a span never waits: a
// bounded queue takes it, and where the queue is full it is dropped and counted. A collector that is
// away, stalls or is overloaded costs this thread's time, and spans.
//
//   add ──> queued ──a batch, or a second──> sent ──200──> exported
//     └ full: dropped                          ├ 429, 502, 503, 504, nobody answers: sent again,
//                                              │   later each time ──five times──> dropped
//                                              └ any other answer: dropped
//
// Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "schema/metrics/metrics_text.h"
#include "schema/tracing/otlp/trace_settings.h"
#include "schema/tracing/span.h"

namespace kiln {

class SpanExporter {
 public:
  struct Counts {
    int64_t exported = 0;  // spans that a collector took
    int64_t dropped = 0;   // spans that none will
  };
  struct Limits {
    size_t queued = 8192;                        // spans; beyond, new ones are dropped
    size_t batch = 512;                          // spans of one request
    std::chrono::milliseconds delay{1'000};      // until a batch that is not full is sent
    std::chrono::milliseconds first_pause{500};  // before a batch is sent again; then twice as long
    std::chrono::milliseconds at_end{2'000};     // of the destructor, for what is queued
  };

  // Null where `settings` are off. REQUIRES: no other thread uses libcurl for the first time meanwhile.
  static std::unique_ptr<SpanExporter> open(TraceSettings settings, Limits limits);
  static std::unique_ptr<SpanExporter> open(TraceSettings settings) {
    return open(std::move(settings), Limits{});
  }
  // Sends what is queued for Limits::at_end at most, and drops the rest.
  ~SpanExporter();

  const TraceSettings& settings() const;
  void add(Span span);
  Counts counts() const;

  struct Impl;

 private:
  explicit SpanExporter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The families kiln_trace_spans_*_total.
void trace_families(MetricsText& out, const SpanExporter::Counts& counts);

}  // namespace kiln
