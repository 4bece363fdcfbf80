// Peers that misbehave, what they may say, and the end.
#include "schema/codec.h"
#include "tests/coordinator/service/service_fixture.h"
#include "tests/support/raw_peer.h"

namespace kiln {
namespace {

TEST_F(ServiceTest, GarbageOnTheSocketIsCountedAndTheServiceGoesOn) {
  RawPeer garbage(endpoint());
  garbage.shake_hands();
  garbage.write_frame("\x01\x02 no message at all");
  EXPECT_TRUE(garbage.closed_by_peer());
  RawPeer(endpoint()).write(std::string(10'000, '\xee'));
  TestClient client(endpoint());
  EXPECT_GE(client.stats().malformed_messages, 1);
  const FakeWorker worker(endpoint(), tally_);
  EXPECT_TRUE(client.compile(test_graph(3)).outcome.has_value());
}

Result<Message> answer_to(RawPeer& peer, const Message& message) {
  peer.write_frame(encode(message));
  return decode(peer.read_frame());
}

TEST_F(ServiceTest, WhoDoesNotSayHelloIsRefused) {
  RawPeer peer(endpoint());
  peer.shake_hands();
  auto answer = answer_to(peer, StatsRequest{1});
  ASSERT_TRUE(answer.has_value());
  ASSERT_NE(std::get_if<Refusal>(&*answer), nullptr);
  answer = answer_to(peer, Hello{});
  ASSERT_TRUE(answer.has_value());
  EXPECT_NE(std::get_if<Welcome>(&*answer), nullptr);
}

TEST_F(ServiceTest, KnownWordsOpenTheDoorToNobody) {
  const FakeWorker worker(endpoint(), tally_);
  TestClient client(endpoint());
  client.compile(test_graph(3));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(*client.compile(test_graph(3)).outcome, CacheOutcome::kHit);
  const CompileRequest known = client.request_for(test_graph(3));
  RawPeer peer(endpoint());
  peer.shake_hands();
  auto answer = answer_to(peer, known);  // without Hello
  ASSERT_TRUE(answer.has_value());
  EXPECT_NE(std::get_if<Refusal>(&*answer), nullptr);
  ASSERT_TRUE(answer_to(peer, Hello{kProtocolVersion, Role::kWorker, "kiln"}).has_value());
  answer = answer_to(peer, known);  // of the other role
  ASSERT_TRUE(answer.has_value());
  EXPECT_NE(std::get_if<Refusal>(&*answer), nullptr);
  ASSERT_TRUE(answer_to(peer, Hello{}).has_value());
  answer = answer_to(peer, known);
  ASSERT_TRUE(answer.has_value());
  const auto* reply = std::get_if<CompileReply>(&*answer);
  ASSERT_NE(reply, nullptr);
  EXPECT_EQ(reply->request, known.request);
  EXPECT_EQ(reply->outcome, CacheOutcome::kHit);
}

TEST_F(ServiceTest, AnotherProtocolVersionIsRefusedWithBothVersions) {
  RawPeer peer(endpoint());
  peer.shake_hands();
  const auto answer = answer_to(peer, Hello{kProtocolVersion + 7, Role::kClient, "kiln 99"});
  ASSERT_TRUE(answer.has_value());
  const auto* refusal = std::get_if<Refusal>(&*answer);
  ASSERT_NE(refusal, nullptr);
  EXPECT_EQ(refusal->error.code, Code::kInvalidArgument);
  EXPECT_NE(refusal->error.message.find("kiln 99"), std::string::npos);
}

TEST_F(ServiceTest, MessagesOfTheOtherRoleAreRefused) {
  TestClient client(endpoint());
  for (const Message& wrong :
       {Message(WorkerReport{}), Message(Welcome{}), Message(NeedGraph{1})}) {
    ASSERT_TRUE(client.connection->send(wrong));
    const auto answer = client.connection->receive(kPatienceMs);
    ASSERT_TRUE(answer.has_value());
    EXPECT_NE(std::get_if<Refusal>(&*answer), nullptr);
  }
  EXPECT_TRUE(client.stats().workers.empty());
}

TEST_F(ServiceTest, StoppingEndsConnectionsAndIsIdempotent) {
  TestClient client(endpoint());
  service_->stop();
  service_->stop();
  service_.reset();
  const auto lost = client.connection->receive(kPatienceMs);
  ASSERT_FALSE(lost.has_value());
  EXPECT_EQ(lost.error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace kiln
