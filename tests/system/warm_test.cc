// Programs that are tuned before anybody needs them: what was answered as queued is tuned, whatever
// dies in between.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "cache/pending_task_store.h"
#include "tests/support/process.h"

namespace kiln::testing {
namespace {

using nlohmann::json;

class Warm : public ::testing::Test {
 protected:
  Warm() : dir_(*TempDir::create()) { service_.emplace(dir_.path() / "data"); }
  void SetUp() override { ASSERT_FALSE(service_->endpoint().empty()) << service_->log(); }

  Finished kiln(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), binary("kiln"));
    return ask(arguments, {"KILN_COORDINATOR=" + service_->endpoint()}, 180);
  }
  Finished warm(const std::string& graph, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"warm", small_graph(graph + ".pt2"), "--mode",
                                          "max-autotune", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return kiln(arguments);
  }
  json status() { return kiln({"warm", "--status", "--json"}).json(); }
  void restart() {
    service_->kill();
    service_.emplace(dir_.path() / "data");
    ASSERT_FALSE(service_->endpoint().empty()) << service_->log();
  }
  // Waits until nothing is queued or running any more.
  void await_idle() {
    for (int tries = 0; tries < 1'200; ++tries) {
      const json now = status();
      if (now.is_object() && now["queued"] == 0 && now["running"] == 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    FAIL() << "it is never done\n" << service_->log();
  }
  int check(const std::string& graph) {
    return kiln({"compile", small_graph(graph + ".pt2"), "--mode", "max-autotune", "--check"})
        .exit_code;
  }

  TempDir dir_;
  std::optional<Service> service_;
};

TEST_F(Warm, WhatIsQueuedIsTunedThoughEverythingIsKilledAtOnce) {
  const Finished queued = warm("softmax", {"--detach"});
  ASSERT_EQ(queued.exit_code, 0) << queued.err << service_->log();
  EXPECT_EQ(queued.json()["cache"], "queued");
  for (int deaths = 0; deaths < 2; ++deaths) {
    restart();
    const json now = status();
    // It is tuned as soon as the service is ready again, and may be done when it is asked for.
    const bool waits = now["queued"].get<int>() + now["running"].get<int>() == 1;
    EXPECT_TRUE(waits || check("softmax") == 0) << now << service_->log();
    std::this_thread::sleep_for(std::chrono::milliseconds(150 * deaths));
  }
  await_idle();
  EXPECT_EQ(status()["failed"], 0);
  const Finished ran =
      kiln({"run", small_graph("softmax.pt2"), "--expect", small_graph("softmax.safetensors"),
            "--mode", "max-autotune", "--no-fallback", "--json"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.json()["cache"], "hit");
  EXPECT_EQ(warm("softmax", {"--detach"}).json()["cache"], "hit");
  restart();
  EXPECT_EQ(status()["queued"], 0) << "what is done is not taken up again";
}

TEST_F(Warm, WaitingItTunesAndLeavesAHit) {
  EXPECT_EQ(check("colsum"), 4);
  const Finished warmed = warm("colsum", {});
  ASSERT_EQ(warmed.exit_code, 0) << warmed.err << service_->log();
  EXPECT_EQ(warmed.json()["cache"], "tuned");
  EXPECT_EQ(check("colsum"), 0);
}

TEST_F(Warm, WhatFailedIsToldOfUntilItIsForgotten) {
  service_.reset();
  {
    const PendingTask flight{Digest::of("g"), {Backend::kCpu, "x86-64-v3", "", 1, ""}};
    auto flights = PendingTaskStore::open(dir_.path() / "data" / "flights.sqlite").value();
    flights->put(flight, "graph", nullptr);
    flights->fail_for_good(flight, {Code::kInternal, "no candidate survived", 0}, nullptr);
  }
  service_.emplace(dir_.path() / "data");
  EXPECT_EQ(kiln({"warm", "--status"}).exit_code, 1);
  const Finished forgotten = kiln({"warm", "--forget-failed", "--json"});
  EXPECT_EQ(forgotten.exit_code, 0) << forgotten.err;
  EXPECT_EQ(forgotten.json()["forgotten"], 1);
  EXPECT_EQ(kiln({"warm", "--status"}).exit_code, 0);
  restart();
  EXPECT_EQ(kiln({"warm", "--status"}).exit_code, 0);
}

TEST_F(Warm, SaysWhatIsWrongWithTheCommandLine) {
  const Finished none = kiln({"warm"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_NE(none.err.find("--status"), std::string::npos) << none.err;
  const Finished nowhere = run({binary("kiln"), "warm", small_graph("softmax.pt2"), "--detach"});
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_NE(nowhere.err.find("--coordinator"), std::string::npos) << nowhere.err;
  const Finished away = run({binary("kiln"), "warm", small_graph("softmax.pt2"), "--detach",
                             "--coordinator", "tcp://127.0.0.1:9"});
  EXPECT_EQ(away.exit_code, 3) << away.err;
  EXPECT_EQ(warm("no such file", {"--detach"}).exit_code, 2);
}

}  // namespace
}  // namespace kiln::testing
