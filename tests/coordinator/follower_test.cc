// kiln-coordinator --follow beside one that leads, as processes on one PostgreSQL.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/cache/objects/places.h"
#include "tests/coordinator/fake_fleet.h"
#include "tests/support/loopback.h"
#include "tests/support/postgres_server.h"

namespace kiln {
namespace {

class FollowerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = testing::PostgresServer::start();
    if (!server && server.error().code == Code::kUnsupported)
      GTEST_SKIP() << server.error().message;
    ASSERT_TRUE(server) << server.error().message;
    server_ = *std::move(server);
    store_ = server_->new_database();
    leads_ = start("leader", "--standby", leader_);
    ASSERT_TRUE(tune(leads_, 3).outcome);
    ASSERT_TRUE(tune(leads_, 4).outcome);
    std::filesystem::create_directories(dir_.path() / "follower");
    std::filesystem::copy(dir_.path() / "leader/signing", dir_.path() / "follower/signing",
                          std::filesystem::copy_options::recursive);
    follows_ = start("follower", "--follow", follower_);
  }

  // Its endpoint.
  std::string start(const std::string& name, const std::string& how, testing::Child& process) {
    const std::string endpoint = fmt::format("tcp://127.0.0.1:{}", free_port());
    const Path out = dir_.path() / (name + ".out"), err = dir_.path() / (name + ".err");
    process = testing::Child::start(
        {testing::binary("kiln-coordinator"), "--data-dir", dir_.path() / name, "--store", store_,
         "--blobs", objects_.url(), "--listen", endpoint, "--http", "none", how},
        out, err);
    EXPECT_TRUE(eventually([&] { return read_file(out).value_or("").ends_with("\n"); }, 40))
        << read_file(err).value_or("");
    return endpoint;
  }
  // Waits while a coordinator goes over from following to leading.
  static std::unique_ptr<Connection> connect(const std::string& endpoint) {
    ConnectOptions options;
    options.follower_will_do = true;
    auto opened = Connection::open(endpoint, Role::kClient, 60'000, options);
    CHECK(opened.has_value(), opened ? "" : opened.error().message);
    return *std::move(opened);
  }
  CompileReply tune(const std::string& endpoint, int constant) {
    const FakeWorker worker(endpoint, tally_, FakeWorkerOptions{});
    return TestClient(endpoint).compile(test_graph(constant));
  }
  // The follower's answer to a look-up.
  CompileReply ask(int constant) {
    TestClient client(connect(follows_));
    return client.compile(test_graph(constant));
  }
  bool hits(int constant) {
    return ask(constant).outcome.value_or(CacheOutcome::kTuned) == CacheOutcome::kHit;
  }

  const TempDir dir_ = *TempDir::create("kiln-follower");
  FolderPlace objects_;
  std::unique_ptr<testing::PostgresServer> server_;
  std::string store_, leads_, follows_;
  testing::Child leader_ = testing::Child::none(), follower_ = testing::Child::none();
  Tally tally_;
};

TEST_F(FollowerTest, WhatIsStoredIsAnsweredWithItsBinariesAndTheRestIsTheLeaders) {
  TestClient client(connect(follows_));
  EXPECT_TRUE(client.connection->welcome().follower);
  const CompileReply hit = client.compile(test_graph(3));
  ASSERT_TRUE(hit.outcome) << hit.outcome.error().message;
  EXPECT_EQ(*hit.outcome, CacheOutcome::kHit);
  const CompileReply leaders = TestClient(leads_).compile(test_graph(3));
  EXPECT_EQ(hit.program_json, leaders.program_json);
  EXPECT_EQ(hit.signature, leaders.signature);
  const Digest blob = program_from_json(hit.program_json).value().kernels.at(0).blob;
  const auto fetched = client.fetch({blob});
  ASSERT_EQ(fetched.blobs.size(), 1U);
  EXPECT_EQ(Digest::of(fetched.blobs[0]), blob);
  const CompileReply miss = client.compile(test_graph(5));
  ASSERT_FALSE(miss.outcome);
  EXPECT_EQ(miss.outcome.error().code, Code::kUnavailable);
  EXPECT_TRUE(eventually([&] {
    return ask(5).outcome.error().message.find(leads_) != std::string::npos;
  })) << ask(5).outcome.error().message;
}

TEST_F(FollowerTest, WorkersAndWhoAsksForMoreThanALookUpFindTheLeader) {
  for (const Role role : {Role::kWorker, Role::kClient}) {
    const auto lost = Connection::open(follows_, role, 200);
    ASSERT_FALSE(lost);
    EXPECT_EQ(lost.error().code, Code::kUnavailable);
    const auto found = Connection::open(follows_ + "," + leads_, role, 5'000);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ((*found)->endpoint(), leads_);
  }
}

// Also of a program that the follower has just answered from its memory.
TEST_F(FollowerTest, WhatIsTakenBackAtTheLeaderIsNotAnsweredASecondLater) {
  ASSERT_TRUE(hits(3));
  const Program program = program_from_json(ask(3).program_json).value();
  TestClient admin(leads_);
  AdminRequest forget;
  forget.request = 77;
  forget.kind = AdminRequest::Kind::kForget;
  forget.key = program.key;
  ASSERT_TRUE(admin.connection->send(forget));
  const auto said = admin.connection->receive(10'000);
  ASSERT_TRUE(said && std::holds_alternative<AdminReply>(*said));
  ASSERT_TRUE(std::get<AdminReply>(*said).outcome);
  EXPECT_TRUE(eventually([&] { return !hits(3); }));
  EXPECT_TRUE(eventually([&] { return connect(follows_)->welcome().revocations > 0; }));
  EXPECT_TRUE(hits(4));
}

TEST_F(FollowerTest, WhilePostgresIsAwayItsMemoryAnswersAndNothingIsAMiss) {
  ASSERT_TRUE(hits(3));
  server_->kill();
  EXPECT_TRUE(hits(3));
  const CompileReply other = ask(4);
  ASSERT_FALSE(other.outcome);
  EXPECT_EQ(other.outcome.error().code, Code::kUnavailable);
  server_->begin();
  EXPECT_TRUE(eventually([&] { return hits(4); }));
}

TEST_F(FollowerTest, WhenTheLeaderDiesItLeadsAtTheSameAddress) {
  leader_.signal(SIGKILL);
  leader_.wait();
  const auto leads = Connection::open(follows_, Role::kClient, 60'000);
  ASSERT_TRUE(leads) << read_file(dir_.path() / "follower.err").value_or("");
  EXPECT_FALSE((*leads)->welcome().follower);
  const CompileReply tuned = tune(follows_, 6);
  ASSERT_TRUE(tuned.outcome) << tuned.outcome.error().message;
  EXPECT_EQ(*tuned.outcome, CacheOutcome::kTuned);
  EXPECT_TRUE(hits(3));
}

}  // namespace
}  // namespace kiln
