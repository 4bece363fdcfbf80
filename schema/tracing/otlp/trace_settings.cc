#include "schema/tracing/otlp/trace_settings.h"

#include <algorithm>
#include <cstring>

#include "compiler_core/base/text.h"

namespace kiln {
namespace {

constexpr std::string_view kBlanks = " \t";

using Variable = std::function<std::string(const char*)>;
using Pairs = std::vector<std::pair<std::string, std::string>>;

constexpr char kTracesPath[] = "/v1/traces";

// "a=b,c=d".
Result<Pairs> read_pairs(const char* name, std::string_view text) {
  Pairs pairs;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view pair = trimmed(text.substr(0, comma), kBlanks);
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    const std::string_view key = trimmed(pair.substr(0, equals), kBlanks);
    if (equals == std::string_view::npos || key.empty())
      return fail(Code::kInvalidArgument,
                  std::string(name) + " is a list of name=value, separated by commas");
    std::string value = percent_decoded(trimmed(pair.substr(equals + 1), kBlanks));
    if (std::ranges::any_of(value, [](unsigned char c) { return c < ' '; }))
      return fail(Code::kInvalidArgument, std::string(name) + " has a control character in it");
    pairs.emplace_back(percent_decoded(key), std::move(value));
  }
  return pairs;
}

// The variable for traces alone, else the one for all signals.
struct Named {
  std::string name, value;
};
Named of_traces(const Variable& variable, const std::string& what) {
  const std::string own = "OTEL_EXPORTER_OTLP_TRACES_" + what;
  if (std::string value = variable(own.c_str()); !value.empty()) return {own, std::move(value)};
  const std::string common = "OTEL_EXPORTER_OTLP_" + what;
  return {common, variable(common.c_str())};
}

bool is_url(std::string_view text) {
  return text.starts_with("http://") || text.starts_with("https://");
}

Result<std::string> url_of(const std::string& flag, const Variable& variable) {
  std::string name = "--otlp-endpoint", base = flag;
  if (base.empty()) {
    name = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
    const std::string whole = variable(name.c_str());
    if (is_url(whole)) return whole;
    base = whole;
  }
  if (base.empty()) {
    name = "OTEL_EXPORTER_OTLP_ENDPOINT";
    base = variable(name.c_str());
  }
  if (base.empty()) return std::string();
  if (!is_url(base))
    return fail(
        Code::kInvalidArgument,
        name + " is '" + base + "'; it is the URL of a collector, as http://127.0.0.1:4318");
  if (base.ends_with(kTracesPath)) return base;
  while (base.ends_with('/')) base.pop_back();
  return base + kTracesPath;
}

Status read_sampler(const Variable& variable, TraceSettings& settings) {
  std::string sampler = variable("OTEL_TRACES_SAMPLER");
  if (sampler.empty()) return {};
  constexpr std::string_view kParentBased = "parentbased_";
  settings.follows_parents = sampler.starts_with(kParentBased);
  if (settings.follows_parents) sampler.erase(0, kParentBased.size());
  if (sampler == "always_on") return {};
  if (sampler == "always_off") {
    settings.sampled_share = 0;
    return {};
  }
  if (sampler != "traceidratio")
    return fail(Code::kInvalidArgument,
                "OTEL_TRACES_SAMPLER is '" + variable("OTEL_TRACES_SAMPLER") +
                    "'; it can be always_on, always_off, traceidratio, or one of these after "
                    "parentbased_");
  const std::string share = variable("OTEL_TRACES_SAMPLER_ARG");
  if (share.empty()) return {};
  if (!read_count(share, settings.sampled_share) || settings.sampled_share > 1)
    return fail(Code::kInvalidArgument,
                "OTEL_TRACES_SAMPLER_ARG is '" + share + "'; it is a share from 0 to 1");
  return {};
}

}  // namespace

// The last bytes of a trace id are random (W3C Trace Context, level 2), so all services that use one
// share choose the same traces.
bool TraceSettings::samples(const TraceContext& caller) const {
  if (!is_on()) return false;
  if (follows_parents && caller.is_valid()) return caller.sampled;
  if (sampled_share >= 1) return true;
  const TraceContext chosen = caller.is_valid() ? caller : TraceContext::root(false);
  uint64_t number = 0;
  for (size_t i = chosen.trace_id.size() - 7; i < chosen.trace_id.size(); ++i)
    number = number << 8 | chosen.trace_id[i];
  return static_cast<double>(number) < sampled_share * 0x1p56;
}

Result<TraceSettings> trace_settings(const std::string& flag, const std::string& service,
                                     const Variable& variable) {
  TraceSettings settings;
  const bool is_off =
      variable("OTEL_SDK_DISABLED") == "true" || variable("OTEL_TRACES_EXPORTER") == "none";
  if (flag.empty() && is_off) return settings;
  TRY(settings.url, url_of(flag, variable));
  if (!settings.is_on()) return settings;
  if (const Named protocol = of_traces(variable, "PROTOCOL"); protocol.value == "grpc")
    return fail(Code::kInvalidArgument,
                protocol.name +
                    " is grpc; Kiln speaks OTLP over HTTP: set it to http/json, and the "
                    "endpoint to the collector's port for HTTP, usually 4318");
  const Named headers = of_traces(variable, "HEADERS");
  TRY(settings.headers, read_pairs(headers.name.c_str(), headers.value));
  if (const Named timeout = of_traces(variable, "TIMEOUT"); !timeout.value.empty()) {
    int64_t ms = 0;
    if (!read_number(timeout.value, ms) || ms < 1 || ms > 600'000)
      return fail(Code::kInvalidArgument, timeout.name + " is '" + timeout.value +
                                              "'; it is a number of milliseconds, at most 600000");
    settings.timeout = std::chrono::milliseconds(ms);
  }
  TRY(settings.resource,
      read_pairs("OTEL_RESOURCE_ATTRIBUTES", variable("OTEL_RESOURCE_ATTRIBUTES")));
  const std::string name = variable("OTEL_SERVICE_NAME");
  const auto given =
      std::ranges::find(settings.resource, "service.name", &Pairs::value_type::first);
  if (given == settings.resource.end())
    settings.resource.emplace_back("service.name", name.empty() ? service : name);
  else if (!name.empty())
    given->second = name;
  TRY_STATUS(read_sampler(variable, settings));
  return settings;
}

}  // namespace kiln
