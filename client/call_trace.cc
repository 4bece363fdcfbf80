#include "client/call_trace.h"

namespace kiln {

CallTrace::CallTrace(const CompileOptions& options, std::string name) : options_(options) {
  const TraceContext caller = TraceContext::parse(options.traceparent);
  if (!options.on_span || !caller.sampled) return;
  call_ = Span::below(caller, std::move(name), trace_clock_ns());
}

CallTrace::~CallTrace() {
  if (!is_on()) return;
  call_.end_ns = trace_clock_ns();
  end_phase(call_.end_ns);
  options_.on_span(call_);
}

void CallTrace::enter(const char* name) {
  if (!is_on()) return;
  // The first one begins with the call.
  const int64_t now_ns = phase_.start_ns == 0 ? call_.start_ns : trace_clock_ns();
  end_phase(now_ns);
  phase_ = Span::below(call_.context, name, now_ns, Span::Kind::kClient);
}

void CallTrace::end_phase(int64_t now_ns) {
  if (phase_.start_ns == 0) return;
  phase_.end_ns = now_ns;
  options_.on_span(phase_);
}

std::string CallTrace::traceparent() const {
  return is_on() ? phase_.context.to_traceparent() : options_.traceparent;
}

void CallTrace::ended(std::string_view outcome) {
  call_.add("kiln.outcome", std::string(outcome));
}

}  // namespace kiln
