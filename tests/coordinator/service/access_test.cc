// What each role may do with a coordinator that runs, and what is said to those who may not.
#include "coordinator/service/access.h"

#include <gtest/gtest.h>

#include "coordinator/service/service.h"
#include "tests/coordinator/fake_fleet.h"

namespace kiln {
namespace {

class AccessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_ = *ensure_server_keys(keys());
    for (const Grant grant :
         {Grant::kRead, Grant::kSubmit, Grant::kPublish, Grant::kWorker, Grant::kAdmin})
      keys_[grant] = admit(std::string(to_string(grant)), grant);
    ServiceOptions options;
    options.data_dir = dir_.path() / "data";
    options.keys = keys();
    auto started = Service::start(std::move(options));
    ASSERT_TRUE(started.has_value()) << started.error().message;
    service_ = *std::move(started);
  }
  Path keys() const { return dir_.path() / "keys"; }
  ClientKey admit(const std::string& name, Grant grant) const {
    ClientKey key{name, grant, make_key_pair(), server_.public_key, ""};
    EXPECT_TRUE(authorize(keys(), {grant, name, key.pair.public_key}).has_value());
    return key;
  }
  Result<std::unique_ptr<Connection>> open(const ClientKey& key, Role role = Role::kClient,
                                           const std::string& token = "") const {
    return Connection::open(service_->endpoint(), role, kPatienceMs, {key, token});
  }
  // What comes back for `message`; a Refusal is the error it carries.
  static Result<Message> ask(Connection& connection, const Message& message) {
    TRY_STATUS(connection.send(message));
    TRY(Message answer, connection.receive(kPatienceMs));
    if (auto* refusal = std::get_if<Refusal>(&answer)) return fail(refusal->error);
    return answer;
  }
  static CompileRequest request_for(int constant, bool with_graph) {
    const NormalForm graph = test_graph(constant);
    CompileRequest request;
    request.request = 1;
    request.graph = graph.digest;
    request.target = test_target();
    if (with_graph) request.graph_text = print(graph.graph);
    return request;
  }
  static WorkerReport report_of(const std::string& name) {
    WorkerReport report;
    report.worker = name;
    report.target = test_target();
    return report;
  }

  const TempDir dir_ = *TempDir::create("kiln-access");
  KeyPair server_;
  std::map<Grant, ClientKey> keys_;
  std::unique_ptr<Service> service_;
};

TEST_F(AccessTest, EachRoleMayDoWhatItIsForAndNoMore) {
  struct Case {
    Message message;
    Grant needed;
  };
  const std::vector<Case> cases = {
      {StatsRequest{1}, Grant::kRead},
      {BlobRequest{1, {Digest::of("x")}}, Grant::kRead},
      {request_for(3, true), Grant::kSubmit},
      {ArtifactGet{1, "inductor.fx_graph", "k"}, Grant::kRead},
      {ArtifactPut{1, "inductor.gemm", "k", "{}"}, Grant::kSubmit},
      {ArtifactPut{1, "inductor.fx_graph", "k", "a pickle"}, Grant::kPublish},
      {ArtifactPut{1, "inductor.aot_autograd", "k", "a pickle"}, Grant::kPublish},
      {AdminRequest{1, AdminRequest::Kind::kCollect, "", std::nullopt, 0}, Grant::kAdmin}};
  for (const Grant held : {Grant::kRead, Grant::kSubmit, Grant::kPublish, Grant::kAdmin}) {
    for (const Case& c : cases) {
      auto connection = *open(keys_[held]);
      const auto answer = ask(*connection, c.message);
      EXPECT_EQ(answer.has_value(), covers(held, c.needed)) << to_string(held);
      if (answer) continue;
      EXPECT_EQ(answer.error().code, Code::kPermissionDenied);
      EXPECT_NE(answer.error().message.find("--role " + std::string(to_string(c.needed))),
                std::string::npos)
          << answer.error().message;
    }
  }
}

TEST_F(AccessTest, WhoMayOnlyReadStartsNothingAndIsToldWhatItTakes) {
  auto reader = *open(keys_[Grant::kRead]);
  const auto answer = ask(*reader, request_for(4, false));
  ASSERT_TRUE(answer.has_value());
  const auto& reply = std::get<CompileReply>(*answer);
  ASSERT_FALSE(reply.outcome.has_value());
  EXPECT_EQ(reply.outcome.error().code, Code::kPermissionDenied);
  EXPECT_NE(reply.outcome.error().message.find("--role submit"), std::string::npos);
  CompileRequest check = request_for(4, false);
  check.check_only = true;
  check.request = 2;
  const auto looked = ask(*reader, check);
  EXPECT_EQ(std::get<CompileReply>(*looked).outcome.error().code, Code::kNotFound);
}

TEST_F(AccessTest, OnlyWhoMayPutAnArtifactIsLeftToMakeIt) {
  ArtifactGet get{1, "inductor.fx_graph", "k"};
  get.lease_ms = 60'000;
  auto submit = *open(keys_[Grant::kSubmit]), publish = *open(keys_[Grant::kPublish]);
  EXPECT_EQ(std::get<ArtifactReply>(*ask(*submit, get)).lease, 0u);
  EXPECT_NE(std::get<ArtifactReply>(*ask(*publish, get)).lease, 0u);
  EXPECT_TRUE(std::get<ArtifactReply>(*ask(*submit, get)).leased);
}

TEST_F(AccessTest, OnlyAWorkersKeyReports) {
  for (const Grant held : {Grant::kRead, Grant::kSubmit}) {
    const auto refused = open(keys_[held], Role::kWorker);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Code::kPermissionDenied);
    EXPECT_NE(refused.error().message.find("--role worker"), std::string::npos);
  }
  auto worker = *open(keys_[Grant::kWorker], Role::kWorker);
  EXPECT_TRUE(ask(*worker, report_of("w")).has_value());
  EXPECT_FALSE(open(keys_[Grant::kWorker], Role::kClient).has_value());
}

TEST_F(AccessTest, NobodySpeaksInTheNameOfAnothersWorker) {
  const ClientKey other = admit("other", Grant::kWorker);
  ASSERT_TRUE(eventually([&] { return open(other, Role::kWorker).has_value(); }));
  auto worker = *open(keys_[Grant::kWorker], Role::kWorker);
  ASSERT_TRUE(ask(*worker, report_of("w")).has_value());
  auto impostor = *open(other, Role::kWorker);
  EXPECT_EQ(ask(*impostor, report_of("w")).error().code, Code::kPermissionDenied);
  worker.reset();  // nor when its connection is gone for a moment
  auto later = *open(other, Role::kWorker);
  EXPECT_EQ(ask(*later, report_of("w")).error().code, Code::kPermissionDenied);
}

TEST_F(AccessTest, AWorkerTakesItsNameBackWithItsToken) {
  const ClientKey& key = keys_[Grant::kWorker];
  auto cut_off = *open(key, Role::kWorker);
  ASSERT_TRUE(ask(*cut_off, report_of("w")).has_value());
  auto twin = *open(key, Role::kWorker);
  EXPECT_EQ(ask(*twin, report_of("w")).error().code, Code::kUnavailable);
  auto resumed = *open(key, Role::kWorker, cut_off->welcome().session);
  EXPECT_TRUE(ask(*resumed, report_of("w")).has_value());
  EXPECT_EQ(cut_off->receive(kPatienceMs).error().code, Code::kUnavailable) << "its time is over";
}

TEST_F(AccessTest, RevokedKeysLoseTheirSessionsWithinASecondOrTwo) {
  auto reader = *open(keys_[Grant::kRead]);
  ASSERT_TRUE(ask(*reader, StatsRequest{1}).has_value());
  ASSERT_TRUE(revoke(keys(), "read").has_value());
  EXPECT_EQ(reader->receive(kPatienceMs).error().code, Code::kUnavailable);
  EXPECT_EQ(open(keys_[Grant::kRead]).error().code, Code::kPermissionDenied);
}

// By the messages of a client that knows the digest; with its graph where it is asked for it.
class AudienceTest : public AccessTest {
 protected:
  void SetUp() override {
    AccessTest::SetUp();
    ann_ = admit_with({Grant::kSubmit, "ann", "", Share::kPrivate, "vision"});
    bob_ = admit_with({Grant::kRead, "bob", "", Share::kAll, "vision"});
    team_ = admit_with({Grant::kSubmit, "team", "", Share::kTeam, "vision"});
    ASSERT_TRUE(eventually([&] { return open(team_).has_value(); })) << "the keys are read";
    FakeWorkerOptions options;
    options.key = keys_[Grant::kWorker];
    worker_ = std::make_unique<FakeWorker>(service_->endpoint(), tally_, options);
  }
  ClientKey admit_with(AuthorizedKey key) const {
    ClientKey made{key.name, key.grant, make_key_pair(), server_.public_key, ""};
    key.public_key = made.pair.public_key;
    EXPECT_TRUE(authorize(keys(), key).has_value());
    return made;
  }
  TestClient client_of(const ClientKey& key) const { return TestClient(*open(key)); }
  // What the key is answered with, and whether its graph was asked for.
  Result<CacheOutcome> ask_for(const ClientKey& key, int constant, int* uploads = nullptr) {
    TestClient client = client_of(key);
    const CompileReply reply = client.compile(test_graph(constant));
    if (uploads != nullptr) *uploads = client.uploads;
    return reply.outcome;
  }

  ClientKey ann_, bob_, team_;
  Tally tally_;
  std::unique_ptr<FakeWorker> worker_;
};

TEST_F(AudienceTest, AnothersPrivateProgramIsAMissUntilOnesOwnGraphMakesIt) {
  EXPECT_EQ(ask_for(ann_, 3).value(), CacheOutcome::kTuned);
  EXPECT_EQ(ask_for(ann_, 3).value(), CacheOutcome::kHit);
  EXPECT_EQ(ask_for(keys_[Grant::kRead], 3).error().code, Code::kPermissionDenied);
  EXPECT_EQ(ask_for(bob_, 3).error().code, Code::kPermissionDenied) << "nor her team";
  EXPECT_EQ(ask_for(keys_[Grant::kAdmin], 3).value(), CacheOutcome::kHit);
  const size_t compiled = tally_.compiled().size();
  int uploads = 0;
  EXPECT_EQ(ask_for(keys_[Grant::kSubmit], 3, &uploads).value(), CacheOutcome::kTuned);
  EXPECT_EQ(uploads, 1) << "it shows that it has the graph";
  EXPECT_EQ(tally_.compiled().size(), compiled) << "kernels are tuned once";
  EXPECT_EQ(ask_for(keys_[Grant::kRead], 3).value(), CacheOutcome::kHit)
      << "who may submit shares with everybody";
}

TEST_F(AudienceTest, ATeamsProgramIsItsReadersToo) {
  EXPECT_EQ(ask_for(team_, 4).value(), CacheOutcome::kTuned);
  EXPECT_EQ(ask_for(bob_, 4).value(), CacheOutcome::kHit);
  EXPECT_EQ(ask_for(bob_, 4).value(), CacheOutcome::kHit) << "by its frame";
  EXPECT_EQ(ask_for(ann_, 4).value(), CacheOutcome::kHit);
  EXPECT_EQ(ask_for(keys_[Grant::kRead], 4).error().code, Code::kPermissionDenied);
  service_->stop();
  service_.reset();
  ServiceOptions options;
  options.data_dir = dir_.path() / "data";
  options.keys = keys();
  service_ = Service::start(std::move(options)).value();
  EXPECT_EQ(ask_for(keys_[Grant::kRead], 4).error().code, Code::kPermissionDenied);
  EXPECT_EQ(ask_for(bob_, 4).value(), CacheOutcome::kHit) << "after a restart, from the index";
}

TEST(Access, ACoordinatorBeyondLoopbackSaysHowKeysAreMade) {
  const TempDir dir = *TempDir::create("kiln-access");
  ServiceOptions options;
  options.data_dir = dir.path();
  options.endpoint = "tcp://0.0.0.0:0";
  const auto refused = Service::start(options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kPermissionDenied);
  EXPECT_NE(refused.error().message.find("kiln keys new"), std::string::npos);
}

}  // namespace
}  // namespace kiln
