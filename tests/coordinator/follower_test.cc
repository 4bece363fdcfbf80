// kiln-coordinator --follow beside one that leads, as processes on one PostgreSQL, or on a hot standby
// of it; and keys that both take.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <limits>

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
    copy_signing_key_to("follower");
    follows_ = start("follower", "--follow", follower_);
  }
  // Gives another data directory the leader's signing key.
  void copy_signing_key_to(const std::string& name) {
    std::filesystem::create_directories(dir_.path() / name);
    std::filesystem::copy(dir_.path() / "leader/signing", dir_.path() / name / "signing",
                          std::filesystem::copy_options::recursive);
  }

  // Its endpoint.
  std::string start(const std::string& name, const std::string& how, testing::Child& process) {
    const std::string endpoint = fmt::format("tcp://127.0.0.1:{}", free_port());
    const Path out = dir_.path() / (name + ".out"), err = dir_.path() / (name + ".err");
    std::vector<std::string> command = {testing::binary("kiln-coordinator"),
                                        "--data-dir",
                                        dir_.path() / name,
                                        "--store",
                                        store_,
                                        "--blobs",
                                        objects_.url(),
                                        "--listen",
                                        endpoint,
                                        "--http",
                                        "none",
                                        how};
    if (!keys_.empty()) command.insert(command.end(), {"--keys", keys_});
    process = testing::Child::start(command, out, err);
    EXPECT_TRUE(eventually([&] { return read_file(out).value_or("").ends_with("\n"); }))
        << read_file(err).value_or("");
    return endpoint;
  }
  // Waits while a coordinator goes over from following to leading.
  std::unique_ptr<Connection> connect(const std::string& endpoint) const {
    ConnectOptions options;
    options.key = key_;
    options.follower_will_do = true;
    auto opened = Connection::open(endpoint, Role::kClient, 60'000, options);
    CHECK(opened.has_value(), opened ? "" : opened.error().message);
    return *std::move(opened);
  }
  CompileReply tune(const std::string& endpoint, int constant) {
    FakeWorkerOptions options;
    options.key = worker_key_;
    const FakeWorker worker(endpoint, tally_, options);
    // A new leader first takes back what ended keys reported.
    return TestClient(connect(endpoint)).compile_with_retries(test_graph(constant));
  }
  // The follower's answer to a look-up.
  CompileReply ask(int constant) {
    TestClient client(connect(follows_));
    return client.compile(test_graph(constant));
  }
  // How many are in the store's audit trail.
  int acts(const std::string& request) const {
    return std::stoi(server_->ask(
        store_,
        fmt::format("SELECT count(*) FROM kiln.acts WHERE request = '{}' AND done", request)));
  }
  bool hits(int constant) {
    return ask(constant).outcome.value_or(CacheOutcome::kTuned) == CacheOutcome::kHit;
  }

  const TempDir dir_ = *TempDir::create("kiln-follower");
  FolderPlace objects_;
  std::unique_ptr<testing::PostgresServer> server_;
  std::string store_, leads_, follows_;
  Path keys_{};                                // that both take; empty: none
  std::optional<ClientKey> key_, worker_key_;  // with `keys_`
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
    const auto found = Connection::open(follows_ + "," + leads_, role, kPatienceMs);
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
  const auto said = admin.connection->receive(kPatienceMs);
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

// ---- On a hot standby, as in a region far away ----

class FarFollowerTest : public FollowerTest {
 protected:
  void SetUp() override {
    FollowerTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    follower_.signal(SIGKILL);
    follower_.wait();
    far_ = *testing::PostgresServer::start();
    far_->follow(*server_);
    const std::string near = store_, port = fmt::format(":{}/", server_->port());
    store_.replace(store_.find(port), port.size(), fmt::format(":{}/", far_->port()));
    store_ += "?target_session_attrs=any";
    copy_signing_key_to("far");
    follows_ = start("far", "--follow", follower_);
    store_ = near;
  }
  std::string said() const { return read_file(dir_.path() / "far.err").value_or(""); }

  std::unique_ptr<testing::PostgresServer> far_;
};

TEST_F(FarFollowerTest, AHotStandbyAnswersWhatItHasAndWhatIsStoredLater) {
  EXPECT_TRUE(hits(3));
  const Digest blob = program_from_json(ask(3).program_json).value().kernels.at(0).blob;
  TestClient client(connect(follows_));
  const auto fetched = client.fetch({blob});
  ASSERT_EQ(fetched.blobs.size(), 1U);
  EXPECT_EQ(Digest::of(fetched.blobs[0]), blob);
  EXPECT_FALSE(hits(5));
  ASSERT_TRUE(tune(leads_, 5).outcome);
  EXPECT_TRUE(eventually([&] { return hits(5); }));
}

TEST_F(FarFollowerTest, WhatIsTakenBackAtTheLeaderIsNotAnsweredThere) {
  ASSERT_TRUE(hits(3));
  AdminRequest forget;
  forget.request = 77;
  forget.kind = AdminRequest::Kind::kForget;
  forget.key = program_from_json(ask(3).program_json).value().key;
  TestClient admin(leads_);
  ASSERT_TRUE(admin.connection->send(forget));
  ASSERT_TRUE(admin.connection->receive(kPatienceMs));
  EXPECT_TRUE(eventually([&] { return !hits(3); }));
  EXPECT_TRUE(eventually([&] { return connect(follows_)->welcome().revocations > 0; }));
}

// The leader's machine and its database are gone: what the region has is answered, and it never leads.
TEST_F(FarFollowerTest, ItGoesOnWithoutTheRestAndNeverLeads) {
  ASSERT_TRUE(hits(3));
  leader_.signal(SIGKILL);
  leader_.wait();
  server_->kill();
  const auto leads = Connection::open(follows_, Role::kClient, 8'000);  // longer than the term
  ASSERT_FALSE(leads);
  EXPECT_EQ(leads.error().code, Code::kUnavailable);
  EXPECT_TRUE(hits(3));
  EXPECT_TRUE(hits(4)) << "not in its memory before";
  EXPECT_TRUE(follower_.running()) << said();
  EXPECT_TRUE(eventually([&] { return said().find("read-only transaction") != std::string::npos; }))
      << said();
}

// ---- Keys ----

class KeyedFollowerTest : public FollowerTest {
 protected:
  void SetUp() override {
    keys_ = dir_.path() / "keys";
    server_pair_ = *ensure_server_keys(keys_);
    key_ = admit("boss", Grant::kAdmin);
    worker_key_ = admit("w", Grant::kWorker);
    FollowerTest::SetUp();
  }
  ClientKey admit(const std::string& name, Grant grant) const {
    ClientKey key{name, grant, make_key_pair(), server_pair_.public_key, ""};
    EXPECT_TRUE(authorize(keys_, {grant, name, key.pair.public_key}));
    return key;
  }
  // Whether a new connection with the key is let in.
  static bool lets_in(const std::string& endpoint, const ClientKey& key) {
    ConnectOptions options;
    options.key = key;
    options.follower_will_do = true;
    const Role role = key.grant == Grant::kWorker ? Role::kWorker : Role::kClient;
    return Connection::open(endpoint, role, kPatienceMs, options).has_value();
  }
  // From the key's revocation to the end of its sessions at both.
  double seconds_to_end(const ClientKey& key) const {
    for (const std::string& endpoint : {leads_, follows_})
      EXPECT_TRUE(eventually([&] { return lets_in(endpoint, key); }));
    ConnectOptions options;
    options.key = key;
    options.follower_will_do = true;
    std::vector<std::unique_ptr<Connection>> open;
    for (const std::string& endpoint : {leads_, follows_})
      open.push_back(Connection::open(endpoint, Role::kClient, kPatienceMs, options).value());
    for (const auto& connection : open) EXPECT_TRUE(answers(*connection));
    EXPECT_TRUE(revoke(keys_, key.name));
    using Clock = std::chrono::steady_clock;
    const auto revoked = Clock::now();
    for (const auto& connection : open)
      EXPECT_TRUE(eventually([&] { return !answers(*connection); })) << "its sessions end";
    return std::chrono::duration<double>(Clock::now() - revoked).count();
  }
  static bool answers(Connection& connection) {
    if (!connection.send(RevocationsRequest{1})) return false;
    const auto said = connection.receive(kPatienceMs);
    return said && !std::holds_alternative<Refusal>(*said);
  }

  KeyPair server_pair_;
};

TEST_F(KeyedFollowerTest, AKeyThatComesOrGoesDoesSoAtBothWithinASecondAndForTheNextLeader) {
  ClientKey anna;
  double seconds = std::numeric_limits<double>::infinity();
  // The first that takes less than five: this machine may stand still in one.
  for (const std::string name : {"anna", "bert", "carl"}) {
    if (seconds < 5) break;
    anna = admit(name, Grant::kSubmit);
    seconds = seconds_to_end(anna);
    for (const std::string& endpoint : {leads_, follows_}) EXPECT_FALSE(lets_in(endpoint, anna));
    EXPECT_TRUE(eventually([&] { return acts("keys: end " + name + " (submit)") == 1; }));
    EXPECT_EQ(acts("keys: let in " + name + " (submit)"), 1);
  }
  RecordProperty("seconds", fmt::format("{:.2f}", seconds));
  EXPECT_LT(seconds, 5) << "each looks once a second; a busy machine takes longer";

  leader_.signal(SIGKILL);
  leader_.wait();
  EXPECT_TRUE(eventually([&] { return !connect(follows_)->welcome().follower; }, 60));
  EXPECT_FALSE(lets_in(follows_, anna));
  const CompileReply tuned = tune(follows_, 6);
  ASSERT_TRUE(tuned.outcome) << tuned.outcome.error().message;
  EXPECT_TRUE(eventually([&] { return acts("lead") == 2; })) << "one for each term";
}

// The leader dies before it has taken back what a revoked worker's key reported.
TEST_F(KeyedFollowerTest, WhatARevokedKeyReportedIsTakenBackByTheNextLeader) {
  ASSERT_TRUE(hits(3));
  leader_.signal(SIGSTOP);
  ASSERT_TRUE(revoke(keys_, "w"));
  leader_.signal(SIGKILL);
  leader_.wait();
  EXPECT_TRUE(eventually([&] { return !connect(follows_)->welcome().follower; }, 60));
  EXPECT_TRUE(eventually([&] { return connect(follows_)->welcome().revocations > 0; }));
  EXPECT_TRUE(eventually([&] { return acts("take back what the revoked key w reported") == 1; }));
  TestClient client(connect(follows_));
  CompileRequest check = client.request_for(test_graph(3));
  check.check_only = true;
  EXPECT_EQ(client.compile(test_graph(3), check).outcome.error().code, Code::kNotFound);
  worker_key_ = admit("w2", Grant::kWorker);
  EXPECT_TRUE(eventually([&] { return lets_in(follows_, *worker_key_); }));
  EXPECT_EQ(tune(follows_, 3).outcome.value(), CacheOutcome::kTuned);
}

// Changed one coordinator after another, each at its next start: either signs for clients that know
// the key of before, and the lists that they publish are in order.
TEST_F(KeyedFollowerTest, ARotatedSigningKeyIsTheNextLeadersAndTheOldOneVouchesForIt) {
  const CompileReply before = ask(3);
  const std::string pinned = connect(leads_)->welcome().signing_key;
  ASSERT_TRUE(SigningKey::rotate(dir_.path() / "follower/signing", std::chrono::hours(24)));
  EXPECT_EQ(connect(follows_)->welcome().signing_key, pinned) << "until it starts, or leads";
  leader_.signal(SIGKILL);
  leader_.wait();
  EXPECT_TRUE(eventually([&] { return !connect(follows_)->welcome().follower; }, 60));
  const auto welcome = connect(follows_)->welcome();
  EXPECT_NE(welcome.signing_key, pinned);
  EXPECT_EQ(Endorsement::parse(welcome.endorsement).value().by, pinned);
  const CompileReply after = ask(3);
  EXPECT_EQ(after.program_json, before.program_json);
  EXPECT_NE(after.signature, before.signature);
}

}  // namespace
}  // namespace kiln
