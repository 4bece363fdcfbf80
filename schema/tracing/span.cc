#include "schema/tracing/span.h"

namespace kiln {

Span Span::below(const TraceContext& parent, std::string name, int64_t start_ns, Kind kind) {
  Span span;
  span.name = std::move(name);
  span.context = parent.child();
  span.parent = parent.span_id;
  span.kind = kind;
  span.start_ns = start_ns;
  return span;
}

Span& Span::add(std::string key, Value value) {
  attributes.emplace_back(std::move(key), std::move(value));
  return *this;
}

int64_t trace_clock_ns(std::chrono::steady_clock::time_point time) {
  using std::chrono::duration_cast, std::chrono::nanoseconds;
  using Steady = std::chrono::steady_clock;
  using System = std::chrono::system_clock;
  static const int64_t kEpochOfSteady =
      duration_cast<nanoseconds>(System::now().time_since_epoch()).count() -
      duration_cast<nanoseconds>(Steady::now().time_since_epoch()).count();
  return kEpochOfSteady + duration_cast<nanoseconds>(time.time_since_epoch()).count();
}

int64_t trace_clock_ns() {
  return trace_clock_ns(std::chrono::steady_clock::now());
}

}  // namespace kiln
