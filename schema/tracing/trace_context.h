// TraceContext: which span of which trace a piece of work belongs to, as the header `traceparent` of
// W3C Trace Context (https://www.w3.org/TR/trace-context/) says it. It travels in CompileRequest and
// Job. Plain value.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace kiln {

struct TraceContext {
  std::array<uint8_t, 16> trace_id{};  // all zero: there is no trace
  std::array<uint8_t, 8> span_id{};
  bool sampled = false;  // its spans are wanted; else it is passed on and nothing is recorded

  bool is_valid() const;  // neither id is all zero
  // "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"; empty where it is not valid.
  std::string to_traceparent() const;
  // Not valid where `traceparent` is not one: work goes on, in a trace of its own or in none. Of a
  // later version than 00, what this one knows is read.
  static TraceContext parse(std::string_view traceparent);

  // With random ids.
  static TraceContext root(bool sampled);
  TraceContext child() const;  // another span of the same trace

  bool operator==(const TraceContext&) const = default;
};

}  // namespace kiln
