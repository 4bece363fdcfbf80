#include "schema/tracing/otlp/span_exporter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "schema/metrics/http_port.h"
#include "tests/support/loopback.h"

namespace kiln {
namespace {

using namespace std::chrono_literals;

// Answers each request with `status`; with 0: never.
struct Collector {
  explicit Collector(unsigned answer) : status(answer) {
    HttpLimits limits;
    limits.body_bytes = 1 << 20;
    limits.head_ms = limits.age_ms = 3'600'000;
    const auto handler = [this](const HttpRequest& request, const HttpPort::Reply& reply) {
      if (status == 200 && request.path == "/v1/traces") {
        const auto json = nlohmann::json::parse(request.body);
        spans += static_cast<int>(json["resourceSpans"][0]["scopeSpans"][0]["spans"].size());
      }
      ++requests;
      if (status != 0) reply(plain_answer(status, "{}"));
    };
    port = *HttpPort::serve("127.0.0.1:" + std::to_string(free_port()), handler, limits);
  }
  TraceSettings settings() const {
    TraceSettings made;
    made.url = port->endpoint() + "/v1/traces";
    made.timeout = 10min;
    made.resource = {{"service.name", "test"}};
    return made;
  }

  std::atomic<unsigned> status;
  std::atomic<int> requests{0}, spans{0};
  std::unique_ptr<HttpPort> port;
};

SpanExporter::Limits quick() {
  SpanExporter::Limits limits;
  limits.delay = 1ms;
  limits.first_pause = 1ms;
  limits.at_end = 100ms;
  return limits;
}

Span span_from_now() {
  return Span::below(TraceContext::root(true), "test", trace_clock_ns());
}

template <class Condition>
bool comes_true(const Condition& condition) {
  for (int i = 0; i < 6000 && !condition(); ++i) std::this_thread::sleep_for(10ms);
  return condition();
}

TEST(SpanExporter, IsNotThereWithoutACollector) {
  EXPECT_EQ(SpanExporter::open({}), nullptr);
}

TEST(SpanExporter, AFullBatchIsSentAtOnceAndTheRestAtTheEnd) {
  Collector collector(200);
  SpanExporter::Limits limits = quick();
  limits.batch = 10;
  limits.delay = 1h;
  limits.at_end = 60s;
  auto exporter = SpanExporter::open(collector.settings(), limits);
  for (int i = 0; i < 25; ++i) exporter->add(span_from_now());
  EXPECT_TRUE(comes_true([&] { return exporter->counts().exported == 20; }));
  exporter.reset();
  EXPECT_EQ(collector.spans, 25);
}

TEST(SpanExporter, AFullQueueDropsAndCounts) {
  Collector collector(0);
  SpanExporter::Limits limits = quick();
  limits.queued = 8;
  const auto exporter = SpanExporter::open(collector.settings(), limits);
  exporter->add(span_from_now());
  ASSERT_TRUE(comes_true([&] { return collector.requests > 0; }));  // it holds the thread up
  for (int i = 0; i < 100; ++i) exporter->add(span_from_now());
  EXPECT_EQ(exporter->counts().dropped, 92);
  EXPECT_EQ(exporter->counts().exported, 0);
}

TEST(SpanExporter, AnOverloadedCollectorIsAskedAgainAndOneThatRefusesIsNot) {
  Collector overloaded(503), refusing(400);
  const auto first = SpanExporter::open(overloaded.settings(), quick());
  const auto second = SpanExporter::open(refusing.settings(), quick());
  first->add(span_from_now());
  second->add(span_from_now());
  EXPECT_TRUE(comes_true([&] { return first->counts().dropped == 1; }));
  EXPECT_TRUE(comes_true([&] { return second->counts().dropped == 1; }));
  EXPECT_EQ(overloaded.requests, 5);
  EXPECT_EQ(refusing.requests, 1);
}

TEST(SpanExporter, OneThatIsAwayCostsTheSpans) {
  const TraceSettings settings = Collector(200).settings();  // whose port is closed by now
  const auto exporter = SpanExporter::open(settings, quick());
  exporter->add(span_from_now());
  EXPECT_TRUE(comes_true([&] { return exporter->counts().dropped == 1; }));
}

// A stalled collector would hold it for ten minutes, for every batch.
TEST(SpanExporter, EndsThoughItsCollectorStalls) {
  Collector collector(0);
  SpanExporter::Limits limits = quick();
  limits.batch = 1;
  auto exporter = SpanExporter::open(collector.settings(), limits);
  for (int i = 0; i < 100; ++i) exporter->add(span_from_now());
  ASSERT_TRUE(comes_true([&] { return collector.requests > 0; }));
  exporter.reset();  // the time limit of tests is the judge
  EXPECT_EQ(collector.requests, 1);
}

}  // namespace
}  // namespace kiln
