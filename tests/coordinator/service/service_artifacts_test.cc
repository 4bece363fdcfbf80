// Artifacts of other compilers at a coordinator that runs: single flight and its ends, what is kept,
// and what is counted.
#include "compiler_core/base/signature.h"
#include "tests/coordinator/service/service_fixture.h"

namespace kiln {
namespace {

class ArtifactsTest : public ServiceTest {
 protected:
  std::unique_ptr<Connection> connect() const {
    return *Connection::open(endpoint(), Role::kClient, kPatienceMs);
  }
  static ArtifactReply hear(Connection& connection) {
    const auto message = connection.receive(kPatienceMs);
    EXPECT_TRUE(message) << message.error().message;
    return message ? std::get<ArtifactReply>(*message) : ArtifactReply{};
  }
  static ArtifactReply ask(Connection& connection, const Message& message) {
    EXPECT_TRUE(connection.send(message));
    return hear(connection);
  }
  static ArtifactGet get(int64_t wait_ms = 0, int64_t lease_ms = 60'000) {
    return {1, "inductor.gemm", "key", wait_ms, lease_ms};
  }
  static ArtifactPut put(std::string value = R"({"aten": 1.5})") {
    return {2, "inductor.gemm", "key", std::move(value)};
  }
  ArtifactStats stats() const {
    for (const ArtifactStats& kind : TestClient(endpoint()).stats().artifacts)
      if (kind.kind == "inductor.gemm") return kind;
    return {};
  }
};

TEST_F(ArtifactsTest, OneMakesItAndTheOtherWaitsForIt) {
  auto maker = connect(), other = connect();
  EXPECT_NE(ask(*maker, get()).lease, 0u);
  EXPECT_TRUE(ask(*other, get()).leased);
  ASSERT_TRUE(other->send(get(600'000)));
  while (stats().joined == 0) std::this_thread::yield();
  EXPECT_TRUE(ask(*maker, put()).outcome);
  const ArtifactReply heard = hear(*other);
  ASSERT_TRUE(heard.outcome);
  EXPECT_EQ(*heard.outcome, R"({"aten": 1.5})");
  const Signature signature{maker->welcome().signing_key, heard.signature};
  EXPECT_TRUE(verify_signature(signed_artifact("inductor.gemm", "key", *heard.outcome), signature,
                               signature.signer, "the artifact"));
  const ArtifactStats counted = stats();
  EXPECT_EQ(counted.entries, 1);
  EXPECT_EQ(counted.hits, 1);
  EXPECT_EQ(counted.misses, 2);
  EXPECT_EQ(counted.stored, 1);
}

TEST_F(ArtifactsTest, ALeaseDiesWithItsConnection) {
  auto maker = connect(), other = connect();
  const uint64_t first = ask(*maker, get()).lease;
  ASSERT_TRUE(other->send(get(600'000)));
  while (stats().joined == 0) std::this_thread::yield();
  maker.reset();
  const uint64_t second = hear(*other).lease;
  EXPECT_NE(second, 0u);
  EXPECT_NE(second, first);
}

TEST_F(ArtifactsTest, ALeaseEndsWithItsTime) {
  auto maker = connect(), other = connect();
  EXPECT_NE(ask(*maker, get(0, 1)).lease, 0u);
  EXPECT_NE(ask(*other, get(600'000)).lease, 0u);
}

TEST_F(ArtifactsTest, AWaitEndsWithItsTime) {
  auto maker = connect(), other = connect();
  EXPECT_NE(ask(*maker, get()).lease, 0u);
  EXPECT_TRUE(ask(*other, get(1)).leased);
}

TEST_F(ArtifactsTest, DataThatIsNoDataIsRefused) {
  auto client = connect();
  EXPECT_EQ(ask(*client, put("\x80\x04K\x01.")).outcome.error().code, Code::kInvalidArgument);
  EXPECT_EQ(ask(*client, ArtifactPut{3, "no.kind", "key", "{}"}).outcome.error().code,
            Code::kUnsupported);
  EXPECT_EQ(stats().entries, 0);
}

TEST_F(ArtifactsTest, WhatIsStoredIsThereAfterARestart) {
  EXPECT_TRUE(ask(*connect(), put()).outcome);
  service_.reset();
  start();
  EXPECT_TRUE(ask(*connect(), get()).outcome);
  EXPECT_EQ(stats().entries, 1);
}

}  // namespace
}  // namespace kiln
