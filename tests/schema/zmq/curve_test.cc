// Who gets in with keys, who does not and what they are told, over real sockets.
#include <gtest/gtest.h>

#include "schema/codec.h"
#include "tests/schema/zmq/echo_server.h"
#include "tests/support/raw_peer.h"

namespace kiln {
namespace {

class CurveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_keys_ = *ensure_server_keys(folder());
    ci_ = admit("ci", Grant::kSubmit);
    bob_ = admit("bob", Grant::kRead);
    keyring_ = *Keyring::open(folder());
  }
  Path folder() const { return dir_.path() / "keys"; }
  ClientKey admit(const std::string& name, Grant grant) const {
    ClientKey key = stranger(name);
    EXPECT_TRUE(authorize(folder(), {grant, name, key.pair.public_key}).has_value());
    return key;
  }
  ClientKey stranger(const std::string& name) const {
    return {name, Grant::kAdmin, make_key_pair(), server_keys_.public_key, ""};
  }
  static Result<std::unique_ptr<Connection>> open(const std::string& endpoint,
                                                  std::optional<ClientKey> key,
                                                  int timeout_ms = kPatienceMs) {
    return Connection::open(endpoint, Role::kClient, timeout_ms, {std::move(key)});
  }

  const TempDir dir_ = *TempDir::create("kiln-curve");
  KeyPair server_keys_;
  ClientKey ci_, bob_;
  std::shared_ptr<Keyring> keyring_;
};

TEST_F(CurveTest, EveryMessageSaysWhoseItIsWhateverTheirFileClaims) {
  EchoServer server(EchoServer::kAnyPort, keyring_);
  auto ci = open(server.endpoint(), ci_);
  ASSERT_TRUE(ci.has_value()) << ci.error().message;
  auto bob = open(server.endpoint(), bob_);
  ASSERT_TRUE(bob.has_value()) << bob.error().message;
  EXPECT_TRUE(answers(**ci, 1));
  EXPECT_EQ(server.last_user(), "ci:submit");
  EXPECT_TRUE(answers(**bob, 2));
  EXPECT_EQ(server.last_user(), "bob:read");
}

TEST_F(CurveTest, ConnectionsOfOneKeyLeavePlacesToOthers) {
  constexpr size_t kMost = 8;
  EchoServer server(EchoServer::kAnyPort, keyring_, kMost);
  std::vector<std::unique_ptr<Connection>> connections;
  for (int i = 0; i < 6; ++i) {
    auto connection = open(server.endpoint(), bob_);
    ASSERT_TRUE(connection.has_value()) << i << ": " << connection.error().message;
    connections.push_back(*std::move(connection));
  }
  EXPECT_FALSE(open(server.endpoint(), bob_, 500).has_value());
  for (int i = 0; i < 2; ++i) {
    auto connection = open(server.endpoint(), ci_);
    ASSERT_TRUE(connection.has_value()) << connection.error().message;
    connections.push_back(*std::move(connection));
  }
  for (const auto& connection : connections) EXPECT_TRUE(answers(*connection, 1));
  connections.erase(connections.begin());  // one of bob's places is free again
  EXPECT_TRUE(open(server.endpoint(), bob_).has_value());
}

TEST_F(CurveTest, AnyInterfaceMayBeListenedOnWithKeysAlone) {
  EXPECT_EQ(Listener::bind("tcp://0.0.0.0:0").error().code, Code::kPermissionDenied);
  EchoServer server("tcp://0.0.0.0:0", keyring_);
  auto ci = open(server.endpoint(), ci_);  // tcp://0.0.0.0:PORT is this machine
  ASSERT_TRUE(ci.has_value()) << ci.error().message;
  EXPECT_TRUE(answers(**ci, 1));
}

TEST_F(CurveTest, AStrangersKeyIsRefusedAtOnce) {
  EchoServer server(EchoServer::kAnyPort, keyring_);
  const auto refused = open(server.endpoint(), stranger("eve"));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kPermissionDenied);
  EXPECT_NE(refused.error().message.find("'eve'"), std::string::npos) << refused.error().message;
  EXPECT_EQ(server.last_user(), ":admin") << "nothing of hers was delivered";
}

TEST_F(CurveTest, WithoutAKeyOneIsToldToBringOne) {
  EchoServer server(EchoServer::kAnyPort, keyring_);
  const auto refused = open(server.endpoint(), std::nullopt);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kPermissionDenied);
  EXPECT_NE(refused.error().message.find("KILN_KEY"), std::string::npos) << refused.error().message;
}

TEST_F(CurveTest, AKeyForACoordinatorWithoutKeysIsSaidToBeTooMuch) {
  const EchoServer server;
  const auto refused = open(server.endpoint(), ci_);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kPermissionDenied);
  EXPECT_NE(refused.error().message.find("without keys"), std::string::npos);
}

TEST_F(CurveTest, ACoordinatorWithAnotherKeyIsNotSpokenTo) {
  const EchoServer server(EchoServer::kAnyPort, keyring_);
  ClientKey misled = ci_;
  misled.server_key = make_key_pair().public_key;
  std::string why;
  // For longer where the first handshake took longer.
  for (int ms = 300; ms <= kPatienceMs && why.find("`server`") == std::string::npos; ms *= 4) {
    const auto refused = open(server.endpoint(), misled, ms);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Code::kUnavailable);
    why = refused.error().message;
  }
  EXPECT_NE(why.find("`server`"), std::string::npos) << why;
}

TEST_F(CurveTest, APublicKeyAloneOpensNothing) {
  const EchoServer server(EchoServer::kAnyPort, keyring_);
  ClientKey thief = ci_;
  thief.pair.secret_key = make_key_pair().secret_key;
  EXPECT_FALSE(open(server.endpoint(), thief, 300).has_value());
}

TEST_F(CurveTest, RevokingAKeyEndsItsSessionsAndNobodyElses) {
  EchoServer server(EchoServer::kAnyPort, keyring_);
  auto ci = *open(server.endpoint(), ci_);
  auto bob = *open(server.endpoint(), bob_);
  EXPECT_TRUE(answers(*ci, 1));
  ASSERT_TRUE(revoke(folder(), "ci").has_value());
  server.refresh_keys();
  const auto ended = ci->receive(kPatienceMs);
  ASSERT_FALSE(ended.has_value());
  EXPECT_EQ(ended.error().code, Code::kUnavailable);
  EXPECT_TRUE(answers(*bob, 2));
  EXPECT_EQ(open(server.endpoint(), ci_).error().code, Code::kPermissionDenied);
  EXPECT_TRUE(eventually([&] { return server.gone() > 0; }));
  EXPECT_EQ(server.gone(), 1u);
}

TEST_F(CurveTest, AnotherRoleIsAnotherSession) {
  EchoServer server(EchoServer::kAnyPort, keyring_);
  auto bob = *open(server.endpoint(), bob_);
  EXPECT_TRUE(answers(*bob, 1));
  ASSERT_TRUE(revoke(folder(), "bob").has_value());
  ASSERT_TRUE(authorize(folder(), {Grant::kAdmin, "bob", bob_.pair.public_key}).has_value());
  server.refresh_keys();
  EXPECT_EQ(bob->receive(kPatienceMs).error().code, Code::kUnavailable);
  auto again = *open(server.endpoint(), bob_);
  EXPECT_TRUE(answers(*again, 2));
  EXPECT_EQ(server.last_user(), "bob:admin");
}

TEST_F(CurveTest, SomebodyLetInAtTheWrongMomentIsNotHeard) {
  auto listener = *Listener::bind(EchoServer::kAnyPort, keyring_);
  std::thread client([&] { (void)open(listener->endpoint(), ci_, 1'000); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // its Hello waits in our queue
  ASSERT_TRUE(revoke(folder(), "ci").has_value());
  ASSERT_TRUE(*listener->refresh_keys());
  EXPECT_FALSE(listener->receive(300).has_value());
  client.join();
}

// A peer without keys may claim whatever it likes in its handshake.
TEST(WithoutKeys, AClaimedUserIsNobody) {
  EchoServer server;
  RawPeer peer(server.endpoint());
  peer.shake_hands(std::string("\x07User-Id\0\0\0\x05", 12) + "admin");
  peer.write_frame(encode(Hello{}));
  EXPECT_FALSE(peer.read_frame().empty());
  EXPECT_EQ(server.last_user(), ":admin");  // no name; on loopback everybody may do everything
}

TEST(WithoutKeys, APeerThatNamesItselfIsRefused) {
  const EchoServer server;
  RawPeer peer(server.endpoint());
  peer.shake_hands(std::string("\x08Identity\0\0\0\x05", 13) + "bob's");
  peer.write_frame(encode(Hello{}));
  EXPECT_TRUE(peer.closed_by_peer());
  EXPECT_EQ(server.malformed(), 1);
}

}  // namespace
}  // namespace kiln
