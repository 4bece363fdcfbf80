// Kernels that are offered to one of several coordinators of a store: candidates of whoever leads
// next, and taken back wherever their publisher's key is revoked.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>

#include "client/artifact_client.h"
#include "client/kernel_offer.h"
#include "compiler_core/ir/text.h"
#include "tests/coordinator/fake_fleet.h"
#include "tests/support/loopback.h"
#include "tests/support/postgres_server.h"
#include "tests/support/slow_magnitude.h"

namespace kiln::testing {
namespace {

std::string graph_text() {
  return slow_magnitude_text(65536);
}

// A and B have one store, one signing key and one list of keys, and each a disk of its own.
class SharedOffers : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = PostgresServer::start();
    if (!server && server.error().code == Code::kUnsupported)
      GTEST_SKIP() << server.error().message;
    ASSERT_TRUE(server) << server.error().message;
    server_ = *std::move(server);
    store_ = server_->new_database();
    ASSERT_TRUE(write_file(at("magnitude.kiln"), graph_text()));
    for (const char* const role : {"publish", "submit", "worker"})
      kiln({"keys", "new", role, "--role", role, "--out", at(fmt::format("{}.key", role)),
            "--data-dir", at("A")});
    for (std::string& endpoint : endpoints_)
      endpoint = fmt::format("tcp://127.0.0.1:{}", free_port());
    start("A");
    std::filesystem::create_directories(at("B"));
    std::filesystem::copy(at("A") + "/signing", at("B") + "/signing",
                          std::filesystem::copy_options::recursive);
  }
  std::string at(const std::string& name) const { return (dir_.path() / name).string(); }
  std::string all() const { return endpoints_[0] + "," + endpoints_[1]; }
  static Finished kiln(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), binary("kiln"));
    const Finished done = ask(arguments);
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return done;
  }
  void start(const std::string& name) {
    const size_t i = name == "A" ? 0 : 1;
    coordinators_[i] = Child::start(
        {binary("kiln-coordinator"), "--data-dir", at(name), "--store", store_, "--blobs",
         at("objects"), "--listen", endpoints_[i], "--http", "none", "--keys", at("A/keys")},
        at(name + ".out"), at(name + ".log"));
    ASSERT_TRUE(eventually([&] {
      return read_file(at(name + ".out")).value_or("").find("ready ") != std::string::npos;
    })) << log(name);
  }
  // A is killed, and B, whose disk is empty, leads.
  void take_over() {
    coordinators_[0].signal(SIGKILL);
    coordinators_[0].wait();
    start("B");
  }
  Child start_worker() const {
    return Child::start({binary("kiln-worker"), "--coordinator", all(), "--name", "w", "--key",
                         at("worker.key"), "--cache-dir", at("cache")},
                        at("worker.out"), at("worker.log"));
  }
  std::string offer(const std::string& name) const {
    const auto made = make_offer(
        *parse_graph(graph_text()),
        {name,
         *Target::parse("cpu"),
         {0, -1},
         KernelText{fmt::format("static void {}(const float* x, float* out, int64_t begin, int64_t "
                                "end) {{\n  for (int64_t i = begin; i < end; ++i) out[i] = "
                                "__builtin_fabsf(x[i]);\n}}\n",
                                name),
                    name}},
        {"", ""});
    EXPECT_TRUE(made) << made.error().message;
    if (!made) return "";
    const Status put = publisher()->put(kOfferedKind, made->key(), offered_to_text(*made),
                                        std::chrono::seconds(60));
    EXPECT_TRUE(put) << put.error().message;
    return made->template_name();
  }
  std::unique_ptr<ArtifactClient> publisher() const {
    return *ArtifactClient::create({all(), at("publish.key")});
  }
  // The schedule of the kernel that wins.
  std::string winner() const {
    const Finished done =
        kiln({"compile", at("magnitude.kiln"), "--mode", "max-autotune", "--strict", "--json",
              "--deadline", "240", "--coordinator", all(), "--key", at("submit.key")});
    const nlohmann::json told = done.json();
    EXPECT_NE(told["cache"], "local") << done.err;
    return told["kernels"][0].value("schedule", "");
  }
  bool is_taken_back(const std::string& name) const {
    return eventually([&] { return winner().substr(0, name.size()) != name; });
  }
  std::string offers_kept() const {
    return server_->ask(store_, "SELECT count(*) FROM kiln.offers");
  }
  std::string log(const std::string& name) const {
    return read_file(at(name + ".log")).value_or("");
  }

  const TempDir dir_ = *TempDir::create("kiln-shared-offers");
  std::unique_ptr<PostgresServer> server_;
  std::string store_;
  std::array<std::string, 2> endpoints_;
  std::array<Child, 2> coordinators_ = {Child::none(), Child::none()};
};

TEST_F(SharedOffers, WhatOneWasOfferedWinsAtTheNextAndIsTakenBackThere) {
  const std::string name = offer("magnitude");
  take_over();
  const Child worker = start_worker();
  EXPECT_EQ(winner(), name) << log("B");
  const auto found =
      publisher()->get(kOfferedKind, server_->ask(store_, "SELECT key FROM kiln.offers"), {});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_TRUE(found->value.has_value()) << "signed by B";
  kiln({"keys", "revoke", "publish", "--data-dir", at("A")});
  EXPECT_TRUE(is_taken_back(name)) << log("B");
  EXPECT_TRUE(eventually([&] { return offers_kept() == "0"; }));
}

// The next one does what the first one was killed before.
TEST_F(SharedOffers, WhatWonBeforeItsKeyWasRevokedIsTakenBackByWhoeverLeads) {
  const Child worker = start_worker();
  const std::string before = winner();
  const std::string name = offer("magnitude");
  EXPECT_NE(before, name);
  EXPECT_EQ(winner(), name) << log("A");
  coordinators_[0].signal(SIGSTOP);
  kiln({"keys", "revoke", "publish", "--data-dir", at("A")});
  take_over();
  EXPECT_TRUE(is_taken_back(name)) << log("B");
  EXPECT_TRUE(eventually([&] { return offers_kept() == "0"; }));
}

}  // namespace
}  // namespace kiln::testing
