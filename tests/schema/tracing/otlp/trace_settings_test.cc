#include "schema/tracing/otlp/trace_settings.h"

#include <gtest/gtest.h>

#include <map>

namespace kiln {
namespace {

using Environment = std::map<std::string, std::string>;
using Pairs = std::vector<std::pair<std::string, std::string>>;

Result<TraceSettings> read(const Environment& environment, const std::string& flag = "") {
  return trace_settings(flag, "kiln", [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? "" : found->second;
  });
}

TEST(TraceSettings, NothingIsTracedByDefault) {
  ASSERT_TRUE(read({}));
  EXPECT_FALSE(read({})->is_on());
  EXPECT_FALSE(read({})->samples(TraceContext::root(true)));
  EXPECT_FALSE(read({{"OTEL_SERVICE_NAME", "x"}, {"OTEL_TRACES_SAMPLER", "always_on"}})->is_on());
}

TEST(TraceSettings, TheEndpointIsTheFlagsElseThatOfTracesElseOfAllSignals) {
  const Environment all = {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/"}};
  EXPECT_EQ(read(all)->url, "http://c:4318/v1/traces");
  Environment both = all;
  both["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = "https://t/own/path";
  EXPECT_EQ(read(both)->url, "https://t/own/path") << "as it is";
  EXPECT_EQ(read(both, "http://flag:1")->url, "http://flag:1/v1/traces");
  EXPECT_EQ(read({}, "http://flag:1/v1/traces")->url, "http://flag:1/v1/traces");
  Environment off = all;
  off["OTEL_SDK_DISABLED"] = "true";
  EXPECT_FALSE(read(off)->is_on());
  off = all;
  off["OTEL_TRACES_EXPORTER"] = "none";
  EXPECT_FALSE(read(off)->is_on());
}

TEST(TraceSettings, HeadersAndAttributesAreDecoded) {
  const auto settings =
      read({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"},
            {"OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc%3d, x-tenant=ml,"},
            {"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "1500"},
            {"OTEL_RESOURCE_ATTRIBUTES", "service.name=other,host.name=h%2C1"}});
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->headers, (Pairs{{"authorization", "Bearer abc="}, {"x-tenant", "ml"}}));
  EXPECT_EQ(settings->timeout.count(), 1500);
  EXPECT_EQ(settings->resource, (Pairs{{"service.name", "other"}, {"host.name", "h,1"}}));
  const auto named = read({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"},
                           {"OTEL_SERVICE_NAME", "mine"},
                           {"OTEL_RESOURCE_ATTRIBUTES", "service.name=other"}});
  EXPECT_EQ(named->resource, (Pairs{{"service.name", "mine"}}));
}

TEST(TraceSettings, WhatCannotBeReadIsNamed) {
  const auto why = [](Environment environment) {
    environment.try_emplace("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c");
    const auto settings = read(environment);
    return settings ? "" : settings.error().message;
  };
  EXPECT_EQ(why({}), "");
  for (const auto& [name, value] : Environment{
           {"OTEL_EXPORTER_OTLP_ENDPOINT", "c:4318"},
           {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "grpc://c:4317"},
           {"OTEL_EXPORTER_OTLP_HEADERS", "authorization"},
           {"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=b%0d%0ac: d"},
           {"OTEL_EXPORTER_OTLP_TIMEOUT", "10s"},
           {"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"},
           {"OTEL_RESOURCE_ATTRIBUTES", "=b"},
           {"OTEL_TRACES_SAMPLER", "jaeger_remote"},
       })
    EXPECT_NE(why({{name, value}}).find(name), std::string::npos) << name;
  EXPECT_NE(why({{"OTEL_TRACES_SAMPLER", "traceidratio"}, {"OTEL_TRACES_SAMPLER_ARG", "2"}}), "");
}

TEST(TraceSettings, ACallersDecisionIsFollowedUnlessTheSamplerSaysOtherwise) {
  const TraceContext wanted = TraceContext::root(true), unwanted = TraceContext::root(false);
  const auto sampler = [](const std::string& name, const std::string& share = "") {
    return *read({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"},
                  {"OTEL_TRACES_SAMPLER", name},
                  {"OTEL_TRACES_SAMPLER_ARG", share}});
  };
  for (const char* name : {"", "parentbased_always_on", "parentbased_always_off"}) {
    EXPECT_TRUE(sampler(name).samples(wanted)) << name;
    EXPECT_FALSE(sampler(name).samples(unwanted)) << name;
  }
  EXPECT_TRUE(sampler("").samples({}));
  EXPECT_FALSE(sampler("parentbased_always_off").samples({}));
  EXPECT_TRUE(sampler("always_on").samples(unwanted));
  EXPECT_FALSE(sampler("always_off").samples(wanted));
  EXPECT_FALSE(sampler("traceidratio", "0").samples(wanted));
  // By the trace's id, so that every service decides alike.
  TraceContext low = unwanted, high = unwanted;
  low.trace_id[9] = 0x3f;
  high.trace_id[9] = 0x41;
  EXPECT_TRUE(sampler("traceidratio", "0.25").samples(low));
  EXPECT_FALSE(sampler("traceidratio", "0.25").samples(high));
}

}  // namespace
}  // namespace kiln
