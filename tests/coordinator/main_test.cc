// kiln-coordinator as a process: its ready line, exit codes and signals.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "schema/zmq/transport.h"
#include "tests/coordinator/fake_fleet.h"
#include "tests/support/http_get.h"
#include "tests/support/process.h"

namespace kiln {
namespace {

class MainTest : public ::testing::Test {
 protected:
  // A coordinator on dir_/data.
  testing::Child start(const std::vector<std::string>& more = {}) const {
    return testing::Child::start(arguments(more), dir_.path() / "out", dir_.path() / "err");
  }
  std::vector<std::string> arguments(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {testing::binary("kiln-coordinator"),
                                    "--data-dir",
                                    (dir_.path() / "data").string(),
                                    "--listen",
                                    "tcp://127.0.0.1:0",
                                    "--http",
                                    "127.0.0.1:0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // The endpoint of the ready line, which stands alone on stdout.
  std::string endpoint() const {
    constexpr std::string_view kReady = "ready ";
    std::string out;
    EXPECT_TRUE(eventually([&] {
      out = read_file(dir_.path() / "out").value_or("");
      return out.ends_with("\n");
    }));
    EXPECT_TRUE(out.starts_with(kReady)) << out;
    EXPECT_EQ(std::ranges::count(out, '\n'), 1) << out;
    return out.substr(kReady.size(), out.size() - kReady.size() - 1);
  }

  const TempDir dir_ = *TempDir::create("kiln-main");
};

TEST_F(MainTest, ServesOnceItSaysReadyAndStopsOnSigterm) {
  for (const int signal : {SIGTERM, SIGINT}) {
    auto coordinator = start();
    EXPECT_TRUE(Connection::open(endpoint(), Role::kClient, kPatienceMs).has_value());
    coordinator.signal(signal);
    EXPECT_EQ(coordinator.wait(), 0);
    std::filesystem::remove(dir_.path() / "out");
  }
}

TEST_F(MainTest, ASecondOneOnTheSameDirectoryExitsWithTwoAndSaysWhy) {
  const auto first = start();
  const std::string serving = endpoint();
  const testing::Finished second = testing::run(arguments());
  EXPECT_EQ(second.exit_code, 2);
  EXPECT_EQ(second.out, "");
  EXPECT_NE(second.err.find((dir_.path() / "data").string()), std::string::npos) << second.err;
  EXPECT_TRUE(Connection::open(serving, Role::kClient, kPatienceMs).has_value());
}

TEST_F(MainTest, WhatWasAnsweredAsTunedIsThereAfterKillMinusNine) {
  Tally tally;
  CompileReply before;
  {
    auto coordinator = start();
    const std::string serving = endpoint();
    const FakeWorker worker(serving, tally);
    before = TestClient(serving).compile(test_graph(3));
    ASSERT_TRUE(before.outcome.has_value()) << before.outcome.error().message;
    coordinator.signal(SIGKILL);
    coordinator.wait();
  }
  std::filesystem::remove(dir_.path() / "out");
  const auto restarted = start();
  TestClient client(endpoint());
  const CompileReply after = client.compile(test_graph(3));
  ASSERT_TRUE(after.outcome.has_value()) << after.outcome.error().message;
  EXPECT_EQ(*after.outcome, CacheOutcome::kHit);
  EXPECT_EQ(after.program_json, before.program_json);
  const Program program = *program_from_json(after.program_json);
  EXPECT_EQ(client.fetch({program.kernels.at(0).blob}).blobs.size(), 1u);
}

TEST_F(MainTest, AReadyFileTellsScriptsThePortsAndHttpSaysHowItIs) {
  const std::string ready_file = (dir_.path() / "ready.json").string();
  auto coordinator = start({"--ready-file", ready_file, "--log-format", "json"});
  const std::string serving = endpoint();
  const auto ready = nlohmann::json::parse(read_file(ready_file).value_or(""));
  EXPECT_EQ(ready.at("endpoint"), serving);
  EXPECT_EQ(ready.at("pid"), coordinator.pid());
  const std::string http = ready.at("http");
  const auto says = [&](const char* path, const char* line) {
    return eventually([&] { return http_get(http, path).find(line) != std::string::npos; });
  };
  EXPECT_TRUE(says("/readyz", "ready\ndegraded: no worker"));
  EXPECT_TRUE(says("/healthz", "200 OK"));
  Tally tally;
  const FakeWorker worker(serving, tally);
  ASSERT_TRUE(TestClient(serving).compile(test_graph(3)).outcome.has_value());
  for (const char* line : {"kiln_lookup_misses_total 1", "kiln_workers{state=\"serving\"} 1",
                           "kiln_flights_total{outcome=\"tuned\"} 1"})
    EXPECT_TRUE(says("/metrics", line)) << line << "\n" << http_get(http, "/metrics");
  coordinator.signal(SIGTERM);
  EXPECT_EQ(coordinator.wait(), 0);
  std::istringstream log(read_file(dir_.path() / "err").value_or(""));
  std::set<std::string> events;
  for (std::string line; std::getline(log, line);)
    events.insert(nlohmann::json::parse(line).at("event").get<std::string>());
  EXPECT_TRUE(events.contains("flight") && events.contains("worker") &&
              events.contains("coordinator"));
}

TEST_F(MainTest, AnHttpPortThatIsTakenStopsOnlyWhoAskedForIt) {
  const std::string ready_file = (dir_.path() / "ready.json").string();
  const auto first = start({"--ready-file", ready_file});
  endpoint();
  const std::string http = nlohmann::json::parse(*read_file(ready_file)).at("http");
  const testing::Finished second = testing::run({testing::binary("kiln-coordinator"), "--data-dir",
                                                 (dir_.path() / "other").string(), "--listen",
                                                 "tcp://127.0.0.1:0", "--http", http.substr(7)});
  EXPECT_EQ(second.exit_code, 2);
  EXPECT_NE(second.err.find("HTTP"), std::string::npos) << second.err;
}

TEST_F(MainTest, BadUsageExitsWithTwo) {
  const std::string program = testing::binary("kiln-coordinator");
  EXPECT_EQ(testing::run({program}).exit_code, 2);
  EXPECT_EQ(testing::run({program, "--no-such-flag"}).exit_code, 2);
  const testing::Finished open_to_all = testing::run(
      {program, "--data-dir", (dir_.path() / "d").string(), "--listen", "tcp://0.0.0.0:0"});
  EXPECT_EQ(open_to_all.exit_code, 2);
  EXPECT_NE(open_to_all.err.find("kiln keys new"), std::string::npos) << open_to_all.err;
}

TEST_F(MainTest, HelpTeachesAndExitsWithZero) {
  const testing::Finished help = testing::run({testing::binary("kiln-coordinator"), "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_NE(help.out.find("--data-dir"), std::string::npos);
  EXPECT_NE(help.out.find("kiln compile"), std::string::npos);
}

}  // namespace
}  // namespace kiln
