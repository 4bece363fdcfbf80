// Workers that only build (`kiln-worker --role build`) for one that measures on the fake GPU: who builds
// what, what is left when some of them are killed, and what is said when nobody measures.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/loopback.h"
#include "tests/support/process.h"

#ifdef KILN_FAKE_LIBCUDA

namespace kiln::testing {
namespace {

using nlohmann::json;

constexpr char kGraph[] =
    "kiln.graph 1\n"
    "%0 = input 0 : f32[48,{0}]\n"
    "%1 = exp %0 : f32[48,{0}]\n"
    "%2 = reduce_sum %1 axes=[1] : f32[48]\n"
    "%3 = view %2 strides=[1,0] offset=[0] : f32[48,{0}]\n"
    "%4 = div %1 %3 : f32[48,{0}]\n"
    "return %4\n";

class Builders : public ::testing::Test {
 protected:
  Builders() {
    for (const int size : {1024, 2048, 4096})
      EXPECT_TRUE(write_file(graph(size), fmt::format(kGraph, size)));
  }
  void SetUp() override { start_coordinator(); }

  Path file(const std::string& name) const { return dir_.path() / name; }
  Path graph(int size) const { return file(fmt::format("rows{}.kiln", size)); }
  void start_coordinator() {
    coordinator_ = Child::start({binary("kiln-coordinator"), "--data-dir", file("data"), "--listen",
                                 endpoint_, "--http", "none"},
                                file("ready"), file("coordinator.log"));
    await("the coordinator answers", [this] { return stats().is_object(); });
  }
  // With a cache of its own, as on a machine of its own.
  Child start_worker(const std::string& name, std::vector<std::string> more) const {
    std::vector<std::string> words{binary("kiln-worker"),
                                   "--coordinator",
                                   endpoint_,
                                   "--name",
                                   name,
                                   "--libnvrtc",
                                   KILN_FAKE_LIBNVRTC,
                                   "--cache-dir",
                                   file("cache-" + name)};
    words.insert(words.end(), more.begin(), more.end());
    return Child::start(words, file(name + ".out"), file(name + ".log"));
  }
  Child start_builder(const std::string& name) const {
    return start_worker(name, {"--role", "build", "--target", "cuda:sm_90a", "--jobs", "2"});
  }
  Child start_gpu() const {
    return start_worker("gpu", {"--device", "cuda:0", "--libcuda", KILN_FAKE_LIBCUDA, "--jobs", "1",
                                "--no-libraries"});
  }
  Child start_client(int size) const {
    return Child::start({binary("kiln"), "compile", graph(size), "--target", "cuda:sm_90a",
                         "--mode", "max-autotune", "--json", "--no-fallback", "--deadline", "240",
                         "--coordinator", endpoint_},
                        file(fmt::format("out{}", size)), file(fmt::format("err{}", size)));
  }
  json stats() const {
    return run({binary("kiln"), "stats", "--json", "--coordinator", endpoint_}).json();
  }
  // Once it is there.
  json worker(const std::string& name) const {
    json found;
    await(name + " is there", [&] {
      const json now = stats();
      if (now.is_object())
        for (const json& row : now["workers"])
          if (row["name"] == name) found = row;
      return found.is_object();
    });
    return found;
  }
  void await_worker(const std::string& name) const { (void)worker(name); }
  template <class Happened>
  void await(const std::string& what, const Happened& happened) const {
    for (int tries = 0; tries < 1'200; ++tries) {
      if (happened()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    FAIL() << what << ": not after a minute\n"
           << read_file(file("coordinator.log")).value_or("")
           << read_file(file("gpu.log")).value_or("") << read_file(file("b1.log")).value_or("");
  }
  json answer_of(Child& client, int size) const {
    const int code = client.wait();
    EXPECT_EQ(code, 0) << read_file(file(fmt::format("err{}", size))).value_or("")
                       << read_file(file("gpu.log")).value_or("");
    return json::parse(read_file(file(fmt::format("out{}", size))).value_or(""), nullptr, false);
  }
  static void expect_all_tried(const json& answer) {
    ASSERT_TRUE(answer.is_object());
    const json& kernel = answer["kernels"][0];
    EXPECT_GT(kernel["measured"].get<int>(), 1) << answer;
    EXPECT_EQ(kernel["candidates"].get<int>(),
              kernel["measured"].get<int>() + kernel["rejected"].get<int>())
        << answer;
  }

  const TempDir dir_ = *TempDir::create();
  const std::string endpoint_ = fmt::format("tcp://127.0.0.1:{}", free_port());
  Child coordinator_ = Child::none();
};

TEST_F(Builders, BuildMostOfWhatOneGpuWithOneCompilerTries) {
  const Child b1 = start_builder("b1"), b2 = start_builder("b2"), gpu = start_gpu();
  for (const char* name : {"b1", "b2", "gpu"}) await_worker(name);
  Child client = start_client(1024);
  const json answer = answer_of(client, 1024);
  expect_all_tried(answer);
  EXPECT_EQ(answer["cache"], "tuned");
  const json at_gpu = worker("gpu"), first = worker("b1"), second = worker("b2");
  EXPECT_EQ(first["role"], "build");
  EXPECT_EQ(first["builds_for"], "cuda:sm_90a");
  EXPECT_EQ(first["measured"], 0);
  EXPECT_EQ(at_gpu["role"], "measure");
  EXPECT_GT(at_gpu["measured"].get<int>(), 1);
  const int elsewhere = first["built"].get<int>() + second["built"].get<int>();
  EXPECT_GT(elsewhere, at_gpu["built"].get<int>()) << stats();
  EXPECT_GE(elsewhere + at_gpu["built"].get<int>(), at_gpu["measured"].get<int>()) << stats();
  EXPECT_NE(run({binary("kiln"), "stats", "--coordinator", endpoint_})
                .out.find("only builds, for cuda:sm_90a"),
            std::string::npos);
}

TEST_F(Builders, AndTheCoordinatorMayBeKilledMeanwhile) {
  const Child gpu = start_gpu(), b2 = start_builder("b2");
  Child b1 = start_builder("b1");
  for (const char* name : {"b1", "b2", "gpu"}) await_worker(name);
  std::vector<Child> clients;
  for (const int size : {1024, 2048, 4096}) clients.push_back(start_client(size));
  const auto is_measured = [this](int least) {
    return [this, least] {
      const json now = stats();
      return now.is_object() && now["candidates_measured"] >= least;
    };
  };
  await("something is measured", is_measured(1));
  b1.signal(SIGKILL);
  await("more is measured", is_measured(3));
  coordinator_.signal(SIGKILL);
  coordinator_.wait();
  b1 = start_builder("b1");
  start_coordinator();
  for (const int size : {1024, 2048, 4096}) {
    const json answer = answer_of(clients.front(), size);
    expect_all_tried(answer);
    // A program that was stored before its answer was lost is a hit.
    EXPECT_TRUE(answer["cache"] == "tuned" || answer["cache"] == "hit") << answer;
    clients.erase(clients.begin());
  }
}

TEST_F(Builders, AloneMeasureNothingAndWhoAsksIsToldSo) {
  const Child b1 = start_builder("b1");
  await_worker("b1");
  Child refused = start_client(1024);
  EXPECT_NE(refused.wait(), 0);
  const std::string said = read_file(file("err1024")).value_or("");
  for (const char* part : {"no worker measures for cuda:sm_90a", "(1 only builds)"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
  EXPECT_EQ(worker("b1")["built"], 0);
  const Child gpu = start_gpu();
  await_worker("gpu");
  Child client = start_client(1024);
  const json answer = answer_of(client, 1024);
  expect_all_tried(answer);
  EXPECT_EQ(answer["cache"], "tuned");
}

TEST_F(Builders, ATargetThatNvrtcDoesNotKnowIsRefusedWithThoseThatItDoes) {
  const Finished refused = run({binary("kiln-worker"), "--role", "build", "--libnvrtc",
                                KILN_FAKE_LIBNVRTC, "--target", "cuda:sm_10", "--check"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("--target cuda:sm_10: this machine's compiler makes no code for it, "
                             "but for "),
            std::string::npos)
      << refused.err;
  EXPECT_NE(refused.err.find("cuda:sm_90a"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace kiln::testing

#endif
