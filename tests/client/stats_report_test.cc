#include "client/cli/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "schema/messages.h"

namespace kiln::cli {
namespace {

Stats stats_at(double uptime_s, int64_t hits) {
  Stats stats;
  stats.uptime_s = uptime_s;
  stats.hits = hits;
  stats.workers.resize(2);
  stats.workers[0].name = "one";
  stats.workers[1].name = "the other";
  stats.workers[1].state = "quarantined";
  stats.workers[1].reason = "its sentinel drifts";
  return stats;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(StatsReport, FieldNamesAreAPromise) {
  const auto json = stats_json(stats_at(2, 7));
  for (const char* name : {"hits",
                           "misses",
                           "joined",
                           "candidates_compiled",
                           "candidates_measured",
                           "flights_open",
                           "retries",
                           "workers",
                           "entries",
                           "bytes",
                           "corrupt_blobs",
                           "malformed_messages",
                           "store_failures",
                           "uptime_s",
                           "requests_open",
                           "candidates_queued",
                           "overloaded",
                           "hedged",
                           "set_aside",
                           "evicted",
                           "connections",
                           "detached_queued",
                           "detached_running",
                           "detached_failed"})
    EXPECT_TRUE(json.contains(name)) << name;
  for (const char* name : {"name", "target", "device_model", "units", "toolkit", "leases",
                           "compiled", "measured", "idle_s", "state", "reason", "sentinel_us"})
    EXPECT_TRUE(json.at("workers").at(0).contains(name)) << name;
  EXPECT_EQ(json.at("hits"), 7);
  EXPECT_EQ(json.at("workers").at(0).at("state"), "serving");
}

TEST(StatsReport, OnePageSaysStatesAndReasonsAndNoRates) {
  const std::string text = stats_text("tcp://host:1", stats_at(2, 7));
  EXPECT_TRUE(contains(text, "7 hits,")) << text;
  EXPECT_TRUE(contains(text, "quarantined")) << text;
  EXPECT_TRUE(contains(text, "because its sentinel drifts")) << text;
  EXPECT_FALSE(contains(text, "/s")) << text;
}

TEST(StatsReport, LivePagesAndLinesHaveRates) {
  const Stats before = stats_at(2, 7), now = stats_at(4, 107);
  EXPECT_TRUE(contains(stats_text("tcp://host:1", now, &before), "107 hits (50.0/s)"));
  const std::string line = stats_line(now, before);
  EXPECT_TRUE(contains(line, "hits_per_s=50.0")) << line;
  EXPECT_TRUE(contains(line, "workers=2 serving=1")) << line;
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST(StatsReport, ARestartedServiceHasNoNegativeRates) {
  EXPECT_TRUE(contains(stats_line(stats_at(1, 0), stats_at(50, 1'000)), "hits_per_s=0.0"));
}

}  // namespace
}  // namespace kiln::cli
