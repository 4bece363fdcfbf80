// JobTrace: the spans of one job, for OpenTelemetry, below the coordinator's span of its lease:
//
//   job                      from its start to its last candidate's result
//     compile                a compiler ran for a candidate
//     evaluate               a candidate (or all finalists, which are timed together) in the runner:
//       open, verify, time   inputs and reference; the comparison; the timing
//
// The runner has no network: its spans are made here, from the times it took. One thread.
#pragma once

#include "schema/messages.h"
#include "schema/tracing/span.h"
#include "worker/build/compile_pool.h"
#include "worker/jobs/evaluation.h"

namespace kiln {

class JobTrace {
 public:
  // Nothing is traced where `sink` is empty, or the job's trace is not recorded.
  JobTrace(const Job& job, const SpanSink& sink);
  ~JobTrace();  // the span of the job ends with what was seen last

  void compiled(int candidate, const Compiled& compiled);
  // Spans of the runner's work between `start` and now. `candidates`: how many at once.
  void evaluated(std::chrono::steady_clock::time_point start, const Evaluation& evaluation,
                 size_t candidates);
  void finished(const CandidateResult& result);

 private:
  bool is_on() const { return span_.context.sampled; }

  const SpanSink& sink_;
  Span span_;  // the job's; its context is not sampled where nothing is traced
};

}  // namespace kiln
