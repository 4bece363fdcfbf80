// Processes killed in the middle: every client still gets its answer, and what was answered as
// stored is there afterwards.
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/process.h"

namespace kiln::testing {
namespace {

using nlohmann::json;

class Crash : public ::testing::Test {
 protected:
  Crash() : dir_(*TempDir::create()) { service_.emplace(dir_.path() / "data"); }

  void SetUp() override { ASSERT_FALSE(service_->endpoint().empty()) << service_->log(); }

  Finished kiln(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), binary("kiln"));
    return ask(arguments, {"KILN_COORDINATOR=" + service_->endpoint()}, 180);
  }
  json stats() { return kiln({"stats", "--json"}).json(); }

  // Waits until `measured` candidates were measured.
  void await_measured(int measured) {
    for (int tries = 0; tries < 6'000; ++tries) {
      const json now = stats();
      if (now.is_object() && now["candidates_measured"] >= measured) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    FAIL() << "nothing is being measured\n" << service_->log();
  }

  // Tunes a program while `disturb` runs, and checks its answer.
  template <class Disturb>
  void expect_right_despite(Disturb disturb) {
    Finished answer;
    std::thread client([&] {
      answer = kiln({"compile", small_graph("linear_bias_gelu.pt2"), "--mode", "max-autotune",
                     "--no-fallback", "--json"});
    });
    await_measured(2);
    disturb();
    client.join();
    ASSERT_EQ(answer.exit_code, 0) << answer.err << service_->log();
    const json kernel = answer.json()["kernels"][0];
    EXPECT_EQ(answer.json()["cache"], "tuned");
    EXPECT_EQ(kernel["candidates"].get<int>(),
              kernel["measured"].get<int>() + kernel["rejected"].get<int>())
        << answer.out;
    EXPECT_LE(kernel["rejected"].get<int>(), 1) << answer.out << service_->log();
    EXPECT_GT(kernel["best_us"].get<double>(), 0);
    const Finished ran =
        kiln({"run", small_graph("linear_bias_gelu.pt2"), "--expect",
              small_graph("linear_bias_gelu.safetensors"), "--mode", "max-autotune", "--json"});
    EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err;
    EXPECT_EQ(ran.json()["cache"], "hit");
  }

  void kill_all(const std::string& name) {
    std::vector<pid_t> pids;
    for (int tries = 0; tries < 6'000 && pids.empty(); ++tries) {  // another may be starting
      std::this_thread::sleep_for(std::chrono::milliseconds(tries == 0 ? 0 : 10));
      pids = descendants(service_->child().pid(), name);
    }
    EXPECT_FALSE(pids.empty()) << name << " is not running";
    for (pid_t pid : pids) ::kill(pid, SIGKILL);
  }

  TempDir dir_;
  std::optional<Service> service_;
};

TEST_F(Crash, ARunnerKilledInTheMiddleCostsNothingButTime) {
  expect_right_despite([&] { kill_all("kiln-runner"); });
}

TEST_F(Crash, AWorkerKilledInTheMiddleIsReplacedAndTheTuneEnds) {
  expect_right_despite([&] { kill_all("kiln-worker"); });
}

TEST_F(Crash, WhatWasAnsweredIsThereAfterTheHouseholdIsKilled) {
  const std::vector<std::string> names = {"softmax", "colsum", "matmul", "rope"};
  std::vector<std::string> answered;
  for (const std::string& name : names) {
    ASSERT_EQ(kiln({"compile", small_graph(name + ".pt2"), "--mode", "max-autotune"}).exit_code, 0);
    answered.push_back(name);
    // In the middle of the next one, everything goes down at once.
    Child next = Child::start({binary("kiln"), "compile", small_graph("layernorm.pt2"), "--mode",
                               "max-autotune", "--coordinator", service_->endpoint()},
                              dir_.path() / "out", dir_.path() / "err");
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    service_->kill();
    service_.emplace(dir_.path() / "data");
    ASSERT_FALSE(service_->endpoint().empty()) << service_->log();
    for (const std::string& earlier : answered) {
      const Finished again = kiln({"run", small_graph(earlier + ".pt2"), "--expect",
                                   small_graph(earlier + ".safetensors"), "--mode", "max-autotune",
                                   "--no-fallback", "--json"});
      EXPECT_EQ(again.exit_code, 0) << again.err;
      EXPECT_EQ(again.json()["cache"], "hit") << earlier;
    }
  }
}

TEST_F(Crash, NothingIsLeftRunning) {
  const pid_t household = service_->child().pid();
  ASSERT_EQ(kiln({"compile", small_graph("softmax.pt2"), "--mode", "max-autotune"}).exit_code, 0);
  std::vector<pid_t> members;
  for (const char* name : {"kiln-coordinator", "kiln-worker", "kiln-runner"})
    for (pid_t pid : descendants(household, name)) members.push_back(pid);
  EXPECT_GE(members.size(), 2u);
  EXPECT_EQ(service_->stop(), 0);
  for (pid_t pid : members) EXPECT_TRUE(ends(pid)) << pid << " is still there";
}

TEST_F(Crash, ABlobWithOneBitFlippedIsTunedAgain) {
  const std::string file = small_graph("colsum.pt2");
  ASSERT_EQ(kiln({"compile", file, "--mode", "max-autotune"}).exit_code, 0);
  service_->stop();
  int flipped = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(dir_.path() / "data" / "blobs")) {
    if (!entry.is_regular_file()) continue;
    std::string bytes = *read_file(entry.path());
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    ASSERT_TRUE(write_file(entry.path(), bytes));
    ++flipped;
  }
  ASSERT_GT(flipped, 0);
  service_.emplace(dir_.path() / "data");
  const Finished again = kiln({"run", file, "--expect", small_graph("colsum.safetensors"), "--mode",
                               "max-autotune", "--no-fallback", "--json"});
  EXPECT_EQ(again.exit_code, 0) << again.err << service_->log();
  EXPECT_GT(stats()["corrupt_blobs"].get<int>(), 0);
}

}  // namespace
}  // namespace kiln::testing
