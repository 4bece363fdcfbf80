// Span: one piece of work of a trace, with its start and its end, as OpenTelemetry has it. Plain value.
// A span that has ended is given to a SpanSink, which never blocks; an empty sink means that nothing is
// traced.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "schema/tracing/trace_context.h"

namespace kiln {

struct Span {
  // Numbers as in opentelemetry/proto/trace/v1/trace.proto.
  enum class Kind : uint8_t {
    kInternal = 1,
    kServer = 2,
    kClient = 3,
    kProducer = 4,
    kConsumer = 5
  };
  using Value = std::variant<std::string, int64_t, double, bool>;

  std::string name;                 // of few different ones: what varies is in the attributes
  TraceContext context;             // its own
  std::array<uint8_t, 8> parent{};  // its parent's span_id; all zero: it is the root
  Kind kind = Kind::kInternal;
  int64_t start_ns = 0, end_ns = 0;  // Unix time
  std::vector<std::pair<std::string, Value>> attributes{};
  std::string error{};                // why the work failed; empty: it did not
  std::vector<TraceContext> links{};  // spans of other traces that it waited for, or served

  // A span below `parent` that begins at `start_ns`.
  static Span below(const TraceContext& parent, std::string name, int64_t start_ns,
                    Kind kind = Kind::kInternal);
  Span& add(std::string key, Value value);
};

// Takes a span that has ended. From any thread.
using SpanSink = std::function<void(Span)>;

// Unix time in nanoseconds, which never goes back within a process: where the system's clock is set,
// spans keep their order and their lengths.
int64_t trace_clock_ns();
int64_t trace_clock_ns(std::chrono::steady_clock::time_point time);

}  // namespace kiln
