#include "schema/zmq/transport.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <set>
#include <thread>

#include "schema/codec.h"
#include "tests/schema/zmq/echo_server.h"
#include "tests/support/raw_peer.h"

namespace kiln {
namespace {

constexpr auto& kAnyPort = EchoServer::kAnyPort;

TEST(Transport, OpensAndCarriesMessagesBothWays) {
  const EchoServer server;
  auto connection = Connection::open(server.endpoint(), Role::kWorker, kPatienceMs);
  ASSERT_TRUE(connection.has_value()) << connection.error().message;
  EXPECT_EQ((*connection)->welcome().template_stamp, sample_digest("stamp"));
  for (uint64_t request = 1; request <= 100; ++request) {
    EXPECT_TRUE(answers(**connection, request));
  }
}

TEST(Transport, RefusesEndpointsBeyondLoopback) {
  for (const char* endpoint : {"tcp://0.0.0.0:0", "tcp://*:0", "tcp://192.168.1.1:80",
                               "tcp://example.com:80", "tcp://127.evil.com:80"}) {
    const auto listener = Listener::bind(endpoint);
    ASSERT_FALSE(listener.has_value()) << endpoint;
    EXPECT_EQ(listener.error().code, Code::kPermissionDenied) << endpoint;
    EXPECT_NE(listener.error().message.find("127.0.0.1"), std::string::npos);
    const auto connection = Connection::open(endpoint, Role::kClient, 100);
    ASSERT_FALSE(connection.has_value());
    EXPECT_EQ(connection.error().code, Code::kPermissionDenied) << endpoint;
  }
}

TEST(Transport, RefusesEndpointsThatAreNone) {
  for (const char* endpoint : {"", "tcp://", "127.0.0.1:80", "tcp://127.0.0.1", "tcp://127.0.0.1:x",
                               "tcp://127.0.0.1:99999", "ipc:///tmp/x", "tcp://127.0.0.1:80/"}) {
    const auto listener = Listener::bind(endpoint);
    ASSERT_FALSE(listener.has_value()) << endpoint;
    EXPECT_EQ(listener.error().code, Code::kInvalidArgument) << endpoint;
  }
}

TEST(Transport, LocalhostIsLoopback) {
  const EchoServer server("tcp://localhost:0");
  expect_serving(server);
}

TEST(Transport, ATakenPortIsUnavailable) {
  const EchoServer server;
  const auto second = Listener::bind(server.endpoint());
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, Code::kUnavailable);
}

TEST(Transport, NobodyThereIsUnavailableWithinTheTimeout) {
  std::string endpoint;
  { endpoint = EchoServer().endpoint(); }
  const auto connection = Connection::open(endpoint, Role::kClient, 100);
  ASSERT_FALSE(connection.has_value());
  EXPECT_EQ(connection.error().code, Code::kUnavailable);
}

TEST(Transport, FindsACoordinatorThatComesUpWhileItWaits) {
  std::string endpoint;
  { endpoint = EchoServer().endpoint(); }
  std::unique_ptr<EchoServer> late;
  std::thread starter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    late = std::make_unique<EchoServer>(endpoint);
  });
  const auto connection = Connection::open(endpoint, Role::kClient, kPatienceMs);
  starter.join();
  EXPECT_TRUE(connection.has_value());
}

TEST(Transport, OfSeveralTheOneThatListensIsFound) {
  std::string nobody;
  { nobody = EchoServer().endpoint(); }
  const EchoServer server;
  const std::string list = nobody + "," + server.endpoint();
  for (const std::string& first : {std::string(), nobody, server.endpoint()}) {
    ConnectOptions options;
    options.first = first;
    const auto connection = Connection::open(list, Role::kClient, kPatienceMs, options);
    ASSERT_TRUE(connection.has_value()) << connection.error().message;
    EXPECT_EQ((*connection)->endpoint(), server.endpoint());
  }
  const auto none = Connection::open(nobody + "," + nobody, Role::kClient, 200);
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, Code::kUnavailable);
}

TEST(Transport, AListWithSomethingElseInItIsInvalidArgument) {
  for (const char* list : {"tcp://127.0.0.1:1,", ",", "tcp://127.0.0.1:1 tcp://127.0.0.1:2",
                           "tcp://127.0.0.1:1,localhost"}) {
    const auto connection = Connection::open(list, Role::kClient, 100);
    ASSERT_FALSE(connection.has_value()) << list;
    EXPECT_EQ(connection.error().code, Code::kInvalidArgument) << list;
  }
}

TEST(Transport, AnotherProtocolVersionIsInvalidArgument) {
  auto listener = *Listener::bind(kAnyPort);
  std::thread old([&] {
    if (const auto received = listener->receive(kPatienceMs)) {
      listener->send(received->peer, Welcome{kProtocolVersion + 1, "later", {}});
    }
    listener->receive(500);  // lets the answer out
  });
  const auto connection = Connection::open(listener->endpoint(), Role::kClient, kPatienceMs);
  old.join();
  ASSERT_FALSE(connection.has_value());
  EXPECT_EQ(connection.error().code, Code::kInvalidArgument);
}

TEST(Transport, ARefusedHelloCarriesItsReason) {
  auto listener = *Listener::bind(kAnyPort);
  std::thread strict([&] {
    if (const auto received = listener->receive(kPatienceMs)) {
      listener->send(received->peer, Refusal{{Code::kInvalidArgument, "too old", 0}});
    }
    listener->receive(500);
  });
  const auto connection = Connection::open(listener->endpoint(), Role::kClient, kPatienceMs);
  strict.join();
  ASSERT_FALSE(connection.has_value());
  EXPECT_EQ(connection.error().message, "too old");
}

// Each time on a connection of its own: what is said while the last one ends is lost with it.
TEST(Transport, AHelloThatWasCutOffIsSaidAgain) {
  constexpr int kCuts = 20;
  auto listener = *Listener::bind(kAnyPort);
  std::set<PeerId> heard;
  std::atomic<bool> stop{false};
  std::thread abrupt([&] {
    while (!stop) {
      const auto received = listener->receive(50);
      if (!received || !heard.insert(received->peer).second) continue;
      if (heard.size() <= kCuts)
        listener->drop(received->peer);
      else
        listener->send(received->peer, Welcome{kProtocolVersion, "patient", {}});
    }
  });
  const auto connection = Connection::open(listener->endpoint(), Role::kClient, kPatienceMs);
  stop = true;
  listener->wake();
  abrupt.join();
  ASSERT_TRUE(connection.has_value()) << connection.error().message;
  EXPECT_EQ((*connection)->welcome().software, "patient");
  EXPECT_EQ(heard.size(), kCuts + 1u);
}

TEST(Transport, ACoordinatorThatGoesAwayIsUnavailableForGood) {
  auto server = std::make_unique<EchoServer>();
  const std::string endpoint = server->endpoint();
  auto connection = *Connection::open(endpoint, Role::kClient, kPatienceMs);
  server.reset();
  const auto lost = connection->receive(kPatienceMs);
  ASSERT_FALSE(lost.has_value());
  EXPECT_EQ(lost.error().code, Code::kUnavailable);
  const EchoServer restarted(endpoint);
  EXPECT_FALSE(connection->send(StatsRequest{1}).has_value());
  expect_serving(restarted);
}

TEST(Transport, SendingToWhoDoesNotReadEndsWhenItMust) {
  auto listener = *Listener::bind(kAnyPort);
  std::thread greeter([&] {
    if (const auto received = listener->receive(kPatienceMs))
      listener->send(received->peer, Welcome{});
  });
  auto connection = *Connection::open(listener->endpoint(), Role::kClient, kPatienceMs);
  greeter.join();
  CompileRequest large;
  large.graph_text = std::string(1 << 20, 'g');
  // The quickest of some: this machine may stand still in one.
  auto quickest = std::chrono::steady_clock::duration::max();
  for (int sent = 0, refused = 0; refused < 5;) {
    ASSERT_LT(sent, 1'000) << "it takes them all";
    const auto started = std::chrono::steady_clock::now();
    const Status status = connection->send(large, 20);
    if (status) {
      ++sent;
      continue;
    }
    ++refused;
    EXPECT_EQ(status.error().code, Code::kUnavailable);
    quickest = std::min(quickest, std::chrono::steady_clock::now() - started);
  }
  EXPECT_LT(quickest, std::chrono::seconds(3));
}

// libzmq connects again by itself, to a coordinator that does not know us.
TEST(Transport, TheRefusalOfTheNextCoordinatorIsNoAnswer) {
  auto server = std::make_unique<EchoServer>();
  const std::string endpoint = server->endpoint();
  auto connection = *Connection::open(endpoint, Role::kClient, kPatienceMs);
  server.reset();
  auto next = *Listener::bind(endpoint);
  std::atomic<bool> stop{false};
  std::thread stranger([&] {
    while (!stop) {
      if (const auto received = next->receive(20))
        next->send(received->peer, Refusal{{Code::kInvalidArgument, "say Hello first", 0}});
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // it is connected again
  Status sent;
  EXPECT_TRUE(eventually([&] {  // it hears of the end later where its thread stands still
    sent = connection->send(StatsRequest{1});
    return !sent;
  }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto received = connection->receive(kPatienceMs);
  stop = true;
  next->wake();
  stranger.join();
  ASSERT_FALSE(sent.has_value());
  EXPECT_EQ(sent.error().code, Code::kUnavailable);
  ASSERT_FALSE(received.has_value()) << "a refusal for an answer";
  EXPECT_EQ(received.error().code, Code::kUnavailable);
}

TEST(Transport, WakeEndsAReceiveFromAnotherThread) {
  const EchoServer server;
  auto connection = *Connection::open(server.endpoint(), Role::kClient, kPatienceMs);
  std::thread waker([&] { connection->wake(); });
  const auto woken = connection->receive(60'000);
  waker.join();
  ASSERT_FALSE(woken.has_value());
  EXPECT_EQ(woken.error().code, Code::kDeadlineExceeded);
  EXPECT_TRUE(answers(*connection, 5));
}

TEST(Transport, WakesBeforeAReceiveAreNotLost) {
  auto listener = *Listener::bind(kAnyPort);
  listener->wake();
  listener->wake();
  EXPECT_FALSE(listener->receive(60'000).has_value());
}

TEST(Transport, KnowsWhichPeersAreThere) {
  auto listener = *Listener::bind(kAnyPort);
  PeerId peer;
  std::atomic<bool> seen{false};
  std::thread client([&] {
    auto connection = *Connection::open(listener->endpoint(), Role::kClient, kPatienceMs);
    (void)connection->receive(300);  // takes probes for nothing
    while (!seen) std::this_thread::yield();
  });
  const auto received = listener->receive(kPatienceMs);
  ASSERT_TRUE(received.has_value());
  peer = received->peer;
  EXPECT_TRUE(listener->send(peer, Welcome{}));
  EXPECT_TRUE(listener->alive(peer));
  seen = true;
  client.join();
  EXPECT_TRUE(eventually([&] { return !listener->alive(peer); }));
  EXPECT_FALSE(listener->send(peer, NeedGraph{1}));
  EXPECT_FALSE(listener->send("nobody", NeedGraph{1}));
}

TEST(Transport, APeerThatDoesNotReadIsDroppedAndOthersAreServed) {
  auto listener = *Listener::bind(kAnyPort);
  RawPeer deaf(listener->endpoint());
  deaf.shake_hands();
  deaf.write_frame(encode(Hello{}));
  const auto received = listener->receive(kPatienceMs);
  ASSERT_TRUE(received.has_value());
  const std::string blob(1 << 20, 'x');
  int sent = 0;
  while (sent < 1'000 && listener->send(received->peer, CompileReply{1, CacheOutcome::kHit, blob}))
    ++sent;
  EXPECT_LT(sent, 400);  // some 100 in ZeroMQ, 64 here, a few in the kernel
  EXPECT_FALSE(listener->congested(received->peer));  // nothing is kept for it
  EXPECT_FALSE(listener->send(received->peer, NeedGraph{1}));
  deaf.write_frame(encode(StatsRequest{1}));  // it cannot know: its connection ends
  EXPECT_FALSE(listener->receive(300).has_value());
  EXPECT_TRUE(deaf.closed_by_peer());
  EXPECT_EQ(listener->malformed_count(), 0);
}

TEST(Transport, WhatManyLeaveUnreadIsBoundedTogether) {
  constexpr int kPeers = 16;
  auto listener = *Listener::bind(kAnyPort);
  std::vector<std::unique_ptr<RawPeer>> slow;
  std::vector<PeerId> peers;
  for (int i = 0; i < kPeers; ++i) {
    slow.push_back(std::make_unique<RawPeer>(listener->endpoint()));
    slow.back()->shake_hands();
    slow.back()->write_frame(encode(Hello{}));
    const auto received = listener->receive(kPatienceMs);
    ASSERT_TRUE(received.has_value());
    peers.push_back(received->peer);
  }
  const auto left = [&] {
    return std::ranges::count_if(peers, [&](const PeerId& peer) { return listener->alive(peer); });
  };
  const std::string reply = encode(CompileReply{1, CacheOutcome::kHit, std::string(1 << 20, 'x')});
  for (int round = 0; round < 80 && left() == kPeers; ++round) {  // no single one is owed too much
    for (const PeerId& peer : peers) (void)listener->send_encoded(peer, reply);
    // A peer that takes nothing and says nothing for half a minute is cut for that.
    for (const auto& peer : slow) {
      peer->read(128 << 10);
      peer->write_frame(encode(StatsRequest{1}));
      (void)listener->receive(1);
    }
  }
  EXPECT_LT(left(), kPeers);
  EXPECT_GE(left(), kPeers / 2) << "and no more are cut than must be";
}

TEST(Transport, AMomentOfCongestionLosesNothing) {
  auto listener = *Listener::bind(kAnyPort);
  auto opened = std::thread([&] {
    auto connection = *Connection::open(listener->endpoint(), Role::kClient, kPatienceMs);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    for (uint64_t expected = 0; expected < 3'000; ++expected) {
      const auto message = connection->receive(kPatienceMs);
      ASSERT_TRUE(message.has_value()) << message.error().message;
      ASSERT_EQ(std::get<NeedGraph>(*message).request, expected);
    }
  });
  const auto received = listener->receive(kPatienceMs);
  ASSERT_TRUE(received.has_value());
  listener->send(received->peer, Welcome{});
  for (uint64_t i = 0; i < 3'000; ++i) EXPECT_TRUE(listener->send(received->peer, NeedGraph{i}));
  EXPECT_TRUE(eventually([&] {
    listener->receive(1);
    return !listener->congested(received->peer);
  }));
  opened.join();
}

// ---- What no well-behaved peer sends ----

TEST(HostilePeer, GarbageInsteadOfAHandshakeDoesNotHurt) {
  const EchoServer server;
  std::mt19937_64 random(7);
  for (int i = 0; i < 20; ++i) {
    RawPeer peer(server.endpoint());
    std::string garbage(4'096, '\0');
    for (char& c : garbage) c = static_cast<char>(random());
    peer.write(garbage);
  }
  {  // a greeting, then nonsense where READY should be
    RawPeer peer(server.endpoint());
    peer.write(std::string("\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL", 16) + std::string(48, '\0') +
               std::string("\x04\x05WHAT?", 7));
    EXPECT_TRUE(peer.closed_by_peer());
    EXPECT_TRUE(eventually([&] { return server.malformed() > 0; }));
  }
  { RawPeer(server.endpoint()).write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); }
  expect_serving(server);
}

TEST(HostilePeer, AFrameOfGarbageIsCountedAndCostsItsConnection) {
  const EchoServer server;
  RawPeer peer(server.endpoint());
  peer.shake_hands();
  peer.write_frame("this is no message of Kiln's at all");
  EXPECT_TRUE(peer.closed_by_peer());
  EXPECT_EQ(server.malformed(), 1);
  expect_serving(server);
}

TEST(HostilePeer, ABitFlippedFrameIsCountedAndCostsItsConnection) {
  const EchoServer server;
  RawPeer peer(server.endpoint());
  peer.shake_hands();
  std::string frame = encode(sample_report());
  frame[9] = static_cast<char>(frame[9] ^ 0x40);
  ASSERT_FALSE(decode(frame).has_value());
  peer.write_frame(frame);
  EXPECT_TRUE(peer.closed_by_peer());
  EXPECT_EQ(server.malformed(), 1);
  expect_serving(server);
}

TEST(HostilePeer, ASlightlyTooLargeFrameIsCounted) {
  const EchoServer server;
  RawPeer peer(server.endpoint());
  peer.shake_hands();
  peer.write_frame(std::string(kMaxFrameBytes + 8, '\0'));
  EXPECT_TRUE(peer.closed_by_peer());
  EXPECT_EQ(server.malformed(), 1);
  expect_serving(server);
}

TEST(HostilePeer, AFrameThatClaimsTerabytesIsClosedBeforeItIsRead) {
  const EchoServer server;
  RawPeer peer(server.endpoint());
  peer.shake_hands();
  peer.write_frame("x", false, uint64_t{1} << 42);
  EXPECT_TRUE(peer.closed_by_peer());
  expect_serving(server);
}

TEST(HostilePeer, AMessageOfSeveralFramesIsCountedAndCostsItsConnection) {
  const EchoServer server;
  RawPeer peer(server.endpoint());
  peer.shake_hands();
  for (int i = 0; i < 100; ++i) peer.write_frame(encode(Hello{}), /*more=*/true);
  peer.write_frame(encode(Hello{}));
  EXPECT_TRUE(peer.closed_by_peer());
  EXPECT_EQ(server.malformed(), 1);
  expect_serving(server);
}

TEST(HostilePeer, OneThatLeavesAfterItsGarbageCostsNobodyElseTheirConnection) {
  auto listener = *Listener::bind(kAnyPort);
  {
    RawPeer peer(listener->endpoint());
    peer.shake_hands();
    peer.write_frame("garbage, read only after the next peer took over the descriptor");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // received, not yet read
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  RawPeer honest(listener->endpoint());
  honest.shake_hands();
  EXPECT_FALSE(listener->receive(100).has_value());  // what somebody who left had said is not read
  honest.write_frame(encode(Hello{}));
  EXPECT_TRUE(listener->receive(kPatienceMs).has_value());
}

TEST(HostilePeer, ACoordinatorThatTalksNonsenseIsUnavailable) {
  auto listener = *Listener::bind(kAnyPort);
  std::thread liar([&] {
    const auto received = listener->receive(kPatienceMs);
    if (!received) return;
    WorkerReport negative;
    negative.slots = -1;  // encodes, does not decode
    listener->send(received->peer, negative);
    listener->receive(500);
  });
  const auto connection = Connection::open(listener->endpoint(), Role::kClient, kPatienceMs);
  liar.join();
  ASSERT_FALSE(connection.has_value());
  EXPECT_EQ(connection.error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace kiln
