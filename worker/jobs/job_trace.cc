#include "worker/jobs/job_trace.h"

namespace kiln {
namespace {

int64_t ns_of(double ms) {
  return static_cast<int64_t>(ms * 1e6);
}

}  // namespace

JobTrace::JobTrace(const Job& job, const SpanSink& sink) : sink_(sink) {
  const TraceContext lease = TraceContext::parse(job.traceparent);
  if (!sink || !lease.sampled) return;
  span_ = Span::below(lease, "job", trace_clock_ns(), Span::Kind::kConsumer);
  span_.add("kiln.lease", static_cast<int64_t>(job.lease));
  span_.add("kiln.lease.kind", std::string(to_string(job.kind)));
  span_.add("kiln.kernel", job.kernel_key.hex());
  span_.add("kiln.candidates", static_cast<int64_t>(job.candidates.size()));
}

JobTrace::~JobTrace() {
  if (!is_on()) return;
  if (span_.end_ns == 0) {
    span_.end_ns = trace_clock_ns();
    span_.error = "taken back";
  }
  sink_(std::move(span_));
}

void JobTrace::compiled(int candidate, const Compiled& compiled) {
  if (!is_on() || !compiled.ran) return;
  Span span = Span::below(span_.context, "compile", 0);
  span.end_ns = trace_clock_ns(compiled.ended);
  span.start_ns = span.end_ns - ns_of(compiled.ms);
  span.add("kiln.candidate", static_cast<int64_t>(candidate));
  if (!compiled.artifact) span.error = compiled.artifact.error().message;
  sink_(std::move(span));
}

// The runner does one after the other; what lies between is the way there and back.
void JobTrace::evaluated(std::chrono::steady_clock::time_point start, const Evaluation& evaluation,
                         size_t candidates) {
  if (!is_on()) return;
  Span span = Span::below(span_.context, "evaluate", trace_clock_ns(start));
  span.end_ns = trace_clock_ns();
  span.add("kiln.candidates", static_cast<int64_t>(candidates));
  span.add("kiln.verdict", std::string(kiln::to_string(evaluation.verdict)));
  if (const double median_us = evaluation.measurement.median_us(); median_us > 0)
    span.add("kiln.median_us", median_us);
  int64_t at_ns = span.start_ns;
  const auto part = [&](const char* name, double ms) {
    if (ms <= 0) return;
    Span one = Span::below(span.context, name, at_ns);
    at_ns = one.end_ns = std::min(at_ns + ns_of(ms), span.end_ns);
    sink_(std::move(one));
  };
  part("open", evaluation.open_ms);
  part("verify", evaluation.verify_ms);
  part("time", evaluation.measure_ms);
  sink_(std::move(span));
}

void JobTrace::finished(const CandidateResult& result) {
  if (!is_on()) return;
  span_.end_ns = trace_clock_ns();
  if (result.verdict == Verdict::kDeviceLost) span_.error = result.log;
}

}  // namespace kiln
