// A coordinator that is killed and comes back costs its waiting clients their patience, not their
// results.
//
//   KILN_RESTART_ROUNDS   rounds of ten clients; default 2
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/loopback.h"
#include "tests/support/process.h"

namespace kiln::testing {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

class Restart : public ::testing::Test {
 protected:
  Restart() : dir_(*TempDir::create()), endpoint_(fmt_endpoint(free_port())) {}

  static std::string fmt_endpoint(int port) { return "tcp://127.0.0.1:" + std::to_string(port); }
  Path file(const std::string& name) const { return dir_.path() / name; }
  Child coordinator(const std::string& data) const {
    return Child::start({binary("kiln-coordinator"), "--data-dir", file(data).string(), "--listen",
                         endpoint_, "--http", "none"},
                        file("coordinator.out"), file("coordinator.log"));
  }
  Child worker() const {
    return Child::start({binary("kiln-worker"), "--coordinator", endpoint_, "--name", "w"},
                        file("worker.out"), file("worker.log"),
                        {"XDG_CACHE_HOME=" + file("cache").string()});
  }
  json stats() const {
    return run({binary("kiln"), "stats", "--json", "--coordinator", endpoint_}).json();
  }
  // The field of `kiln stats --json`; -1: nobody answers.
  int stat(const char* field) const {
    const json now = stats();
    return now.is_object() && now.contains(field) ? now[field].get<int>() : -1;
  }
  template <class Happened>
  static bool await(const Happened& happened) {
    for (int tries = 0; tries < 1'200; ++tries) {
      if (happened()) return true;
      std::this_thread::sleep_for(milliseconds(50));
    }
    return false;
  }
  bool await(const char* field, int least) const {
    return await([&] { return stat(field) >= least; });
  }
  // A worker that was there and stands still: a coordinator that has just begun lets clients wait
  // three seconds for the first one, and half a minute for one that it knew.
  Child stopped_worker() const {
    Child worker = this->worker();
    EXPECT_TRUE(await([this] {
      const json now = stats();
      return now.is_object() && !now["workers"].empty();
    })) << "no worker came";
    worker.signal(SIGSTOP);
    return worker;
  }
  Child client(int number, const std::string& graph, std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {binary("kiln"), "compile",      small_graph(graph),
                                      "--mode",       "max-autotune", "--coordinator",
                                      endpoint_,      "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return Child::start(words, file("out" + std::to_string(number)),
                        file("err" + std::to_string(number)));
  }
  json answer(int number) const {
    return json::parse(read_file(file("out" + std::to_string(number))).value_or(""), nullptr,
                       false);
  }
  std::string said(int number) const {
    return read_file(file("err" + std::to_string(number))).value_or("");
  }

  TempDir dir_;
  const std::string endpoint_;
};

int rounds() {
  const char* const wanted = std::getenv("KILN_RESTART_ROUNDS");
  return wanted == nullptr ? 2 : std::atoi(wanted);
}

TEST_F(Restart, TenWaitingClientsGetTheirTunedPrograms) {
  const std::vector<std::string> graphs = {"softmax.pt2", "layernorm.pt2", "colsum.pt2"};
  for (int round = 0; round < rounds(); ++round) {
    const std::string data = "data" + std::to_string(round);
    Child service = coordinator(data);
    const Child worker = stopped_worker();
    std::vector<Child> clients;
    for (int i = 0; i < 10; ++i)
      clients.push_back(
          client(i, graphs[static_cast<size_t>(i) % graphs.size()], {"--deadline", "240"}));
    ASSERT_TRUE(await("requests_open", 10)) << "the clients do not wait";
    worker.signal(SIGCONT);
    ASSERT_TRUE(await("candidates_measured", 1)) << "nothing is tuned";
    service.signal(SIGKILL);
    service.wait();
    std::this_thread::sleep_for(milliseconds(round * 5'000 / std::max(1, rounds() - 1)));
    service = coordinator(data);
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(clients[static_cast<size_t>(i)].wait(), 0) << said(i);
      const json got = answer(i);
      ASSERT_TRUE(got.is_object()) << said(i);
      EXPECT_NE(got["cache"], "local") << said(i);
      EXPECT_EQ(got["mode"], "max-autotune");
      EXPECT_GT(got["kernels"][0]["best_us"].get<double>(), 0);
    }
    service.signal(SIGKILL);
    service.wait();
  }
}

TEST_F(Restart, OneThatDoesNotComeBackIsNamedAndTheProgramIsCompiledHere) {
  Child service = coordinator("data");
  const Child worker = stopped_worker();
  Child waiting = client(0, "softmax.pt2", {"--deadline", "20"});
  ASSERT_TRUE(await("requests_open", 1));
  service.signal(SIGKILL);
  service.wait();
  EXPECT_EQ(waiting.wait(), 0) << said(0);
  EXPECT_EQ(answer(0)["cache"], "local");
  EXPECT_NE(said(0).find(endpoint_ + " did not come back; compiled here, untuned"),
            std::string::npos)
      << said(0);
}

}  // namespace
}  // namespace kiln::testing
