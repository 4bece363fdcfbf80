// Three coordinators of one store, of which one leads: whoever is killed, clients that name all three
// are answered, and workers go over.
//
//   KILN_TAKEOVER_ROUNDS   rounds of six clients; default 2
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tests/support/loopback.h"
#include "tests/support/postgres_server.h"

namespace kiln::testing {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr size_t kCoordinators = 3, kClients = 6;
constexpr size_t kNobody = kCoordinators;

int rounds() {
  const char* const wanted = std::getenv("KILN_TAKEOVER_ROUNDS");
  return wanted == nullptr ? 2 : std::atoi(wanted);
}

class Takeover : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = PostgresServer::start();
    if (!server && server.error().code == Code::kUnsupported)
      GTEST_SKIP() << server.error().message;
    ASSERT_TRUE(server) << server.error().message;
    server_ = *std::move(server);
    for (std::string& endpoint : endpoints_) {
      endpoint = fmt::format("tcp://127.0.0.1:{}", free_port());
      all_ += (all_.empty() ? "" : ",") + endpoint;
    }
    serve_afresh();
  }

  // All three on an empty store, the first one leads.
  void serve_afresh() {
    for (size_t i = 0; i < kCoordinators; ++i) kill(i);
    store_ = server_->new_database();
    std::filesystem::remove_all(file("objects"));
    start(0);
    ASSERT_EQ(await_leader(), 0U) << log(0);
    for (size_t i = 1; i < kCoordinators; ++i) {
      std::filesystem::create_directories(data(i));
      std::filesystem::copy(data(0) / "signing", data(i) / "signing",
                            std::filesystem::copy_options::recursive |
                                std::filesystem::copy_options::overwrite_existing);
      start(i);
    }
  }

  Path file(const std::string& name) const { return dir_.path() / name; }
  Path data(size_t i) const { return file(fmt::format("data{}", i)); }
  std::string log(size_t i) const { return read_file(file(fmt::format("log{}", i))).value_or(""); }
  void start(size_t i) {
    coordinators_[i] = Child::start(
        {binary("kiln-coordinator"), "--data-dir", data(i), "--store", store_, "--blobs",
         file("objects"), "--listen", endpoints_[i], "--http", "none", how_},
        file(fmt::format("ready{}", i)), file(fmt::format("log{}", i)));
  }
  Child start_worker() const {
    return Child::start({binary("kiln-worker"), "--coordinator", all_, "--name", "w"},
                        file("worker.out"), file("worker.log"),
                        {"XDG_CACHE_HOME=" + file("cache").string()});
  }
  Child start_client(size_t number, const std::string& graph) const {
    return Child::start({binary("kiln"), "compile", small_graph(graph), "--mode", "max-autotune",
                         "--coordinator", all_, "--json", "--deadline", "240"},
                        file(fmt::format("out{}", number)), file(fmt::format("err{}", number)));
  }
  // What `kiln stats --json` comes to say.
  template <class Holds>
  bool await(const Holds& holds) const {
    for (int tries = 0; tries < 1'200; ++tries) {
      const json now = run({binary("kiln"), "stats", "--json", "--coordinator", all_}).json();
      if (now.is_object() && holds(now)) return true;
      std::this_thread::sleep_for(milliseconds(50));
    }
    return false;
  }
  bool await(const char* field, int least) const {
    return await([&](const json& now) { return now.value(field, 0) >= least; });
  }
  // A client that begins while nobody leads may compile for itself: all have asked before somebody is
  // killed.
  bool await_clients() const {
    return await([](const json& now) {
      return now["hits"].get<size_t>() + now["misses"].get<size_t>() +
                 now["joined"].get<size_t>() >=
             kClients;
    });
  }
  // A coordinator that has just begun lets clients wait three seconds for its first worker.
  bool await_worker() const {
    return await([](const json& now) { return !now["workers"].empty(); });
  }
  // The coordinator that runs and says that it serves.
  size_t await_leader() {
    for (int tries = 0; tries < 1'200; ++tries) {
      for (size_t i = 0; i < kCoordinators; ++i)
        if (coordinators_[i].running() && log(i).find("state=serving") != std::string::npos)
          return i;
      std::this_thread::sleep_for(milliseconds(50));
    }
    return kNobody;
  }
  std::string worker_said() const { return read_file(file("worker.log")).value_or(""); }
  // After the first `before` bytes of its log.
  bool await_worker_at(size_t i, size_t before) const {
    for (int tries = 0; tries < 1'200; ++tries) {
      if (worker_said().find("connected to " + endpoints_[i], before) != std::string::npos)
        return true;
      std::this_thread::sleep_for(milliseconds(50));
    }
    return false;
  }
  void kill(size_t i) {
    if (coordinators_[i].pid() > 0) {
      coordinators_[i].signal(SIGKILL);
      coordinators_[i].wait();
      coordinators_[i] = Child::none();
    }
    std::filesystem::remove(file(fmt::format("log{}", i)));
  }
  void expect_answered(Child& client, size_t number, const char* when) const {
    const std::string said = read_file(file(fmt::format("err{}", number))).value_or("");
    EXPECT_EQ(client.wait(), 0) << when << said;
    const json got =
        json::parse(read_file(file(fmt::format("out{}", number))).value_or(""), nullptr, false);
    ASSERT_TRUE(got.is_object()) << when << said;
    EXPECT_NE(got["cache"], "local") << when << said;
    EXPECT_GT(got["kernels"][0]["best_us"].get<double>(), 0) << when;
  }

  const TempDir dir_ = *TempDir::create();
  std::unique_ptr<PostgresServer> server_;
  std::string store_, all_, how_ = "--follow";
  std::array<std::string, kCoordinators> endpoints_;
  std::array<Child, kCoordinators> coordinators_ = {Child::none(), Child::none(), Child::none()};
};

// At another moment in each round: while clients wait for a worker, while one tunes, while results
// are stored.
TEST_F(Takeover, WhoWaitsWhileTheLeaderIsKilledIsAnsweredByTheNext) {
  const std::vector<std::string> graphs = {"softmax.pt2", "layernorm.pt2", "colsum.pt2",
                                           "argmax.pt2"};
  const Child worker = start_worker();
  std::mt19937 random(7);
  for (int round = 0; round < rounds(); ++round) {
    how_ = round % 2 == 0 ? "--follow" : "--standby";
    serve_afresh();
    const bool waits_for_worker = round % 3 == 2;
    if (!waits_for_worker) {
      ASSERT_TRUE(await_worker()) << worker_said();
    }
    std::vector<Child> clients;
    for (size_t i = 0; i < kClients; ++i)
      clients.push_back(start_client(i, graphs[i % graphs.size()]));
    ASSERT_TRUE(await_clients()) << log(0);
    if (!waits_for_worker) {
      ASSERT_TRUE(await("candidates_measured", 1)) << "nothing is tuned";
    }
    std::this_thread::sleep_for(milliseconds(random() % 200));
    const size_t said_before = worker_said().size();
    const auto killed = Clock::now();
    kill(0);
    const size_t next = await_leader();
    ASSERT_NE(next, kNobody) << "nobody took over";
    const double took_s = std::chrono::duration<double>(Clock::now() - killed).count();
    for (size_t i = 0; i < kClients; ++i)
      expect_answered(clients[i], i, fmt::format("round {}: ", round).c_str());
    fmt::print("round {}, {}: {} led {:.2f} s after 0 was killed\n", round, how_, next, took_s);
    // Clients whose results were stored before are answered before the worker has come back.
    EXPECT_TRUE(await_worker_at(next, said_before)) << worker_said();
  }
}

TEST_F(Takeover, WhatOneCoordinatorTunedIsAHitOfTheNext) {
  const Child worker = start_worker();
  ASSERT_TRUE(await_worker()) << worker_said();
  Child first = start_client(0, "softmax.pt2");
  expect_answered(first, 0, "before: ");
  kill(0);
  ASSERT_NE(await_leader(), kNobody);
  Child second = start_client(1, "softmax.pt2");
  expect_answered(second, 1, "after: ");
  EXPECT_EQ(json::parse(read_file(file("out1")).value())["cache"], "hit");
}

TEST_F(Takeover, PostgresThatIsKilledAndComesBackCostsNoClientItsAnswer) {
  const Child worker = start_worker();
  ASSERT_TRUE(await_worker()) << worker_said();
  std::vector<Child> clients;
  for (size_t i = 0; i < kClients; ++i) clients.push_back(start_client(i, "layernorm.pt2"));
  ASSERT_TRUE(await("candidates_measured", 1));
  server_->kill();
  server_->begin();
  for (size_t i = 0; i < kClients; ++i) expect_answered(clients[i], i, "");
}

}  // namespace
}  // namespace kiln::testing
