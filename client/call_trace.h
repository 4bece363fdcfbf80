// CallTrace: the spans of one call of the client's library, for OpenTelemetry: `client compile` (or
// fetch, look_up, submit) and below it its phases, one after the other, without gaps. What the service
// does is below the phase `ask`. One thread.
#pragma once

#include <string>

#include "client/client.h"
#include "schema/tracing/span.h"

namespace kiln {

class CallTrace {
 public:
  // Makes no spans where `options` has no CompileOptions::on_span, or its trace is not recorded. The
  // options outlive it.
  CallTrace(const CompileOptions& options, std::string name);
  ~CallTrace();  // ends both spans
  CallTrace(const CallTrace&) = delete;
  CallTrace& operator=(const CallTrace&) = delete;

  // Ends the phase before; `name` has static lifetime.
  void enter(const char* name);
  // For what is asked of others in this phase.
  std::string traceparent() const;
  void ended(std::string_view outcome);
  void failed(const Error& error) { phase_.error = call_.error = error.message; }

 private:
  bool is_on() const { return call_.context.sampled; }
  void end_phase(int64_t now_ns);

  const CompileOptions& options_;
  Span call_, phase_;
};

}  // namespace kiln
