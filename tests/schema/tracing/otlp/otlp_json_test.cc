#include "schema/tracing/otlp/otlp_json.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace kiln {
namespace {

using Json = nlohmann::json;

Span span() {
  const auto above = TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  Span made = Span::below(above, "lease", 1'700'000'000'000'000'001, Span::Kind::kProducer);
  made.end_ns = made.start_ns + 5;
  return made;
}

Json only(const Span& exported) {
  const Json request = Json::parse(otlp_json({{"service.name", "kiln"}}, {&exported, 1}));
  const Json& of_resource = request["resourceSpans"][0];
  EXPECT_EQ(of_resource["resource"]["attributes"][0]["value"]["stringValue"], "kiln");
  return of_resource["scopeSpans"][0]["spans"].at(0);
}

// 64-bit integers are strings, ids are hex, enums are numbers: OTLP's mapping, not protobuf's own.
TEST(OtlpJson, ASpanIsWrittenAsOtlpHasIt) {
  Span exported = span();
  exported.add("count", int64_t{1} << 62).add("us", 2.5).add("ok", true);
  exported.add("text", std::string("a \"b\"\n"));
  exported.links.push_back(TraceContext::root(true));
  exported.error = "why";
  const Json json = only(exported);
  EXPECT_EQ(json["traceId"], "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(json["parentSpanId"], "b7ad6b7169203331");
  EXPECT_EQ(json["spanId"].get<std::string>().size(), 16u);
  EXPECT_EQ(json["startTimeUnixNano"], "1700000000000000001");
  EXPECT_EQ(json["endTimeUnixNano"], "1700000000000000006");
  EXPECT_EQ(json["kind"], 4);
  EXPECT_EQ(json["attributes"][0]["key"], "count");
  EXPECT_EQ(json["attributes"][0]["value"]["intValue"], "4611686018427387904");
  EXPECT_EQ(json["attributes"][1]["value"]["doubleValue"], 2.5);
  EXPECT_EQ(json["attributes"][2]["value"]["boolValue"], true);
  EXPECT_EQ(json["attributes"][3]["value"]["stringValue"], "a \"b\"\n");
  EXPECT_EQ(json["links"][0]["spanId"].get<std::string>().size(), 16u);
  EXPECT_EQ(json["status"], Json::parse(R"({"code":2,"message":"why"})"));
}

TEST(OtlpJson, ARootHasNoParent) {
  Span root = span();
  root.parent = {};
  EXPECT_FALSE(only(root).contains("parentSpanId"));
  EXPECT_FALSE(only(root).contains("status"));
}

// Names of workers and compilers' words come from elsewhere.
TEST(OtlpJson, HostileTextIsMendedAndCut) {
  Span exported = span();
  exported.add("bytes", std::string("\xff\xfe\0x", 4));
  exported.add("long", std::string(1 << 20, 'x'));
  exported.add("not a number", std::numeric_limits<double>::quiet_NaN());
  exported.end_ns = 0;
  const Json json = only(exported);
  const std::string cut = json["attributes"][1]["value"]["stringValue"];
  EXPECT_EQ(cut.size(), kMaxTraceTextBytes);
  EXPECT_EQ(json["attributes"][2]["value"]["doubleValue"], 0);
  EXPECT_EQ(json["endTimeUnixNano"], json["startTimeUnixNano"]) << "never before its start";
}

}  // namespace
}  // namespace kiln
