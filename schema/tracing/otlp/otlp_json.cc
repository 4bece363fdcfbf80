#include "schema/tracing/otlp/otlp_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "compiler_core/base/signature.h"

namespace kiln {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kStatusError = 2;  // Status.StatusCode

std::string hex_of(const auto& id) {
  return to_hex({reinterpret_cast<const char*>(id.data()), id.size()});
}

bool is_zero(const auto& id) {
  return id == std::remove_cvref_t<decltype(id)>{};
}

Json text_of(const std::string& text) {
  return text.substr(0, kMaxTraceTextBytes);
}

Json any_value(const Span::Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return {{"stringValue", text_of(*text)}};
  if (const auto* number = std::get_if<int64_t>(&value))
    return {{"intValue", std::to_string(*number)}};
  if (const auto* yes = std::get_if<bool>(&value)) return {{"boolValue", *yes}};
  const double number = std::get<double>(value);
  return {{"doubleValue", std::isfinite(number) ? number : 0.0}};
}

Json attribute(const std::string& key, const Span::Value& value) {
  return {{"key", key}, {"value", any_value(value)}};
}

Json span_json(const Span& span) {
  Json json = {{"traceId", hex_of(span.context.trace_id)},
               {"spanId", hex_of(span.context.span_id)},
               {"flags", span.context.sampled ? 1 : 0},
               {"name", span.name},
               {"kind", static_cast<int>(span.kind)},
               {"startTimeUnixNano", std::to_string(span.start_ns)},
               {"endTimeUnixNano", std::to_string(std::max(span.start_ns, span.end_ns))}};
  if (!is_zero(span.parent)) json["parentSpanId"] = hex_of(span.parent);
  for (const auto& [key, value] : span.attributes)
    json["attributes"].push_back(attribute(key, value));
  for (const TraceContext& link : span.links)
    json["links"].push_back({{"traceId", hex_of(link.trace_id)}, {"spanId", hex_of(link.span_id)}});
  if (!span.error.empty())
    json["status"] = {{"code", kStatusError}, {"message", text_of(span.error)}};
  return json;
}

}  // namespace

std::string otlp_json(const std::vector<std::pair<std::string, std::string>>& resource,
                      std::span<const Span> spans) {
  Json attributes = Json::array(), list = Json::array();
  for (const auto& [key, value] : resource) attributes.push_back(attribute(key, value));
  for (const Span& span : spans) list.push_back(span_json(span));
  const Json scope = {{"scope", {{"name", "kiln"}, {"version", "0.1.0"}}},
                      {"spans", std::move(list)}};
  const Json of_resource = {{"resource", {{"attributes", std::move(attributes)}}},
                            {"scopeSpans", Json::array({scope})}};
  const Json request = {{"resourceSpans", Json::array({of_resource})}};
  return request.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace kiln
