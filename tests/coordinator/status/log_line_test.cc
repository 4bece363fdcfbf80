#include "coordinator/status/log_line.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace kiln {
namespace {

LogLine example() {
  LogLine line("flight", LogLine::Level::kWarning);
  line.add("key", "012345678901").add("kernels", 3).add("total_s", 2.26);
  line.add("reason", "no kernel for \"scan\"");
  return line;
}

TEST(LogLine, LogfmtQuotesOnlyWhatWouldBreakTheLine) {
  EXPECT_EQ(example().logfmt(),
            "flight key=012345678901 kernels=3 total_s=2.260 "
            "reason=\"no kernel for \\\"scan\\\"\"");
  EXPECT_EQ(LogLine("a").add("empty", "").logfmt(), "a empty=\"\"");
  EXPECT_EQ(LogLine("a").add("name", "x=1").logfmt(), "a name=\"x=1\"");
}

TEST(LogLine, JsonKeepsTypesEvenOfTextThatLooksLikeANumber) {
  const auto json = nlohmann::json::parse(example().json("2026-11-21T20:00:00.000Z"));
  EXPECT_EQ(json.at("time"), "2026-11-21T20:00:00.000Z");
  EXPECT_EQ(json.at("level"), "warning");
  EXPECT_EQ(json.at("event"), "flight");
  EXPECT_TRUE(json.at("key").is_string());
  EXPECT_EQ(json.at("kernels"), 3);
  EXPECT_DOUBLE_EQ(json.at("total_s"), 2.26);
}

// Names of workers and texts of errors come from peers.
TEST(LogLine, WhatPeersSayStaysOneLineAndValid) {
  LogLine line("worker");
  line.add("name", "evil\nflight key=1 \xff\x00z");
  EXPECT_EQ(line.logfmt().find('\n'), std::string::npos);
  const std::string json = line.json();
  EXPECT_EQ(json.find('\n'), std::string::npos);
  EXPECT_TRUE(nlohmann::json::accept(json)) << json;
}

}  // namespace
}  // namespace kiln
