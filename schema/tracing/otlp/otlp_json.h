// The body of a request to a collector: an ExportTraceServiceRequest of OTLP 1.x in its JSON form
// (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding): ids in hex, 64-bit integers as
// strings. Pure function.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "schema/tracing/span.h"

namespace kiln {

// `resource`: what all spans are of, as service.name. Text that is not UTF-8 is mended, and attributes
// and errors are cut at kMaxTraceTextBytes.
std::string otlp_json(const std::vector<std::pair<std::string, std::string>>& resource,
                      std::span<const Span> spans);
inline constexpr size_t kMaxTraceTextBytes = 1024;

}  // namespace kiln
