// TraceSettings: where spans go, by the variables that OpenTelemetry's own SDKs read
// (https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/). Plain value.
//
//   OTEL_EXPORTER_OTLP_TRACES_ENDPOINT   the URL itself
//   OTEL_EXPORTER_OTLP_ENDPOINT          "http://collector:4318"; /v1/traces is added
//   OTEL_EXPORTER_OTLP_[TRACES_]HEADERS  "authorization=Bearer%20abc,x-tenant=ml"
//   OTEL_EXPORTER_OTLP_[TRACES_]TIMEOUT  ms of one request; 10000
//   OTEL_EXPORTER_OTLP_[TRACES_]PROTOCOL anything but grpc: OTLP over HTTP, as JSON, is spoken
//   OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES
//   OTEL_TRACES_SAMPLER, OTEL_TRACES_SAMPLER_ARG  for traces that begin here; parentbased_always_on
//   OTEL_TRACES_EXPORTER=none, OTEL_SDK_DISABLED=true  nothing is sent
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "compiler_core/base/result.h"
#include "schema/tracing/trace_context.h"

namespace kiln {

struct TraceSettings {
  std::string url{};  // of the collector, with its path; empty: nothing is traced
  std::vector<std::pair<std::string, std::string>> headers{};
  std::chrono::milliseconds timeout{10'000};                    // of one request
  std::vector<std::pair<std::string, std::string>> resource{};  // service.name and more
  double sampled_share = 1;                                     // of the traces that begin here
  bool follows_parents = true;  // false: `sampled_share` is of all traces

  bool is_on() const { return !url.empty(); }
  // Whether a trace that goes on from `caller` is recorded here.
  bool samples(const TraceContext& caller) const;
};

// `flag`: --otlp-endpoint, which goes before the environment's; empty: not given. `service`: the name
// where the environment has none. `variable`: of the environment; "": not set. kInvalidArgument names
// the variable that cannot be read, and what it can be.
Result<TraceSettings> trace_settings(const std::string& flag, const std::string& service,
                                     const std::function<std::string(const char*)>& variable);

}  // namespace kiln
