// What connections make us keep is bounded, whatever they send. Sizes are far below what an
// unwatched listener takes (2 GiB and more), so that sanitizers and a loaded machine change
// nothing.
#include "schema/zmq/wire_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "schema/codec.h"
#include "tests/schema/zmq/echo_server.h"
#include "tests/support/raw_peer.h"

namespace kiln {
namespace {

constexpr int64_t kMiB = 1 << 20;

int64_t resident_bytes() {
  long size = 0, resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  EXPECT_EQ(std::fscanf(file, "%ld %ld", &size, &resident), 2);
  std::fclose(file);
  return resident * sysconf(_SC_PAGESIZE);
}

// Writes `bytes` again and again until the other side has enough; how many bytes it took.
int64_t write_until_cut(RawPeer& peer, const std::string& bytes, int64_t at_most) {
  int64_t written = 0;
  while (written < at_most && peer.write(bytes)) written += static_cast<int64_t>(bytes.size());
  return written;
}

std::string frames(size_t count, size_t size, char flags) {
  std::string header(1, static_cast<char>(flags | 2));
  for (int shift = 56; shift >= 0; shift -= 8) header += static_cast<char>(size >> shift & 0xff);
  std::string all;
  for (size_t i = 0; i < count; ++i) all += header + std::string(size, 'x');
  return all;
}

TEST(WireWatch, AMessageOfEndlesslyManyEmptyFramesIsEndedForItsSender) {
  EchoServer server;
  RawPeer peer(server.endpoint());
  peer.shake_hands();
  peer.write_frame(encode(Hello{}));
  std::string empty_frames;
  for (int i = 0; i < 32'000; ++i) empty_frames += std::string("\x01\0", 2);
  const int64_t before = resident_bytes();
  EXPECT_LT(write_until_cut(peer, empty_frames, 256 * kMiB), 256 * kMiB);
  EXPECT_LT(resident_bytes() - before, 1024 * kMiB);  // 256 MiB of them would be 8 GiB
  expect_serving(server);
}

TEST(WireWatch, AMessageOfEndlesslyManyLargeFramesIsEndedForItsSender) {
  EchoServer server;
  RawPeer peer(server.endpoint());
  peer.shake_hands();
  const int64_t before = resident_bytes();
  EXPECT_LT(write_until_cut(peer, frames(16, 64 << 10, 1), 4096 * kMiB), 4096 * kMiB);
  EXPECT_LT(resident_bytes() - before, 1024 * kMiB);
  expect_serving(server);
}

TEST(WireWatch, ManyWhoEachKeepALittleAreCutToo) {
  EchoServer server;
  std::vector<std::unique_ptr<RawPeer>> peers;
  const std::string little = frames(1, 100 << 10, 1) + frames(1, 100 << 10, 1);
  for (int i = 0; i < 150; ++i) {
    peers.push_back(std::make_unique<RawPeer>(server.endpoint()));
    peers.back()->shake_hands();
    peers.back()->write(little);
  }
  int cut = 0;
  for (int round = 0; round < 6'000 && server.malformed() <= 20; ++round)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  cut = static_cast<int>(server.malformed());
  EXPECT_GT(cut, 20);   // 150 of them keep 29 MiB
  EXPECT_LT(cut, 150);  // and no more are cut than must be
  expect_serving(server);
}

TEST(WireWatch, ACrowdOfTinyFramesIsCutByWhatItCosts) {
  EchoServer server;
  std::string little;  // 80 KB that take 32 times as much
  for (int i = 0; i < 40'000; ++i) little += std::string("\x01\0", 2);
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (int i = 0; i < 100; ++i) {
    peers.push_back(std::make_unique<RawPeer>(server.endpoint()));
    peers.back()->shake_hands();
    peers.back()->write(little);
  }
  for (int round = 0; round < 6'000 && server.malformed() < 20; ++round)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_GE(server.malformed(), 20);  // together they keep 8 MB, half of what may be kept of others
  expect_serving(server);
}

TEST(Listener, ConnectionsThatSayNothingMakeRoomForThoseThatDo) {
  constexpr size_t kMost = 8;
  EchoServer server(EchoServer::kAnyPort, nullptr, kMost);
  auto early = Connection::open(server.endpoint(), Role::kClient, kPatienceMs);
  ASSERT_TRUE(early.has_value()) << early.error().message;
  const auto begun = std::chrono::steady_clock::now();
  std::vector<std::unique_ptr<RawPeer>> silent;
  for (int i = 0; i < 40; ++i) silent.push_back(std::make_unique<RawPeer>(server.endpoint()));
  for (int round = 0; round < 6'000 && server.malformed() < 33; ++round)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const int64_t cut = server.malformed();
  EXPECT_GE(cut, 33);  // one of eight places is taken by who was heard
  // Handshakes that have not ended after ten seconds are counted, too.
  const bool none_is_late = std::chrono::steady_clock::now() - begun < std::chrono::seconds(9);
  EXPECT_TRUE(cut == 33 || !none_is_late) << cut;
  expect_serving(server);
  EXPECT_TRUE(answers(**early, 1));
}

TEST(Listener, WhoWasHeardKeepsItsPlace) {
  constexpr size_t kMost = 3;
  EchoServer server(EchoServer::kAnyPort, nullptr, kMost);
  std::vector<std::unique_ptr<Connection>> heard;
  for (size_t i = 0; i < kMost; ++i) {
    auto connection = Connection::open(server.endpoint(), Role::kClient, kPatienceMs);
    ASSERT_TRUE(connection.has_value()) << connection.error().message;
    heard.push_back(*std::move(connection));
  }
  EXPECT_FALSE(Connection::open(server.endpoint(), Role::kClient, 500).has_value());
  for (const auto& connection : heard) EXPECT_TRUE(answers(*connection, 1));
  heard.pop_back();
  // Who comes before the server has seen that end is cut, and says Hello again.
  expect_serving(server);
}

TEST(WireWatch, OneWhoIsSlowWithALargeMessageIsServed) {
  EchoServer server;
  RawPeer peer(server.endpoint());
  peer.shake_hands();
  peer.write_frame(encode(Hello{}));
  CompileRequest request;
  request.graph_text = std::string(3 << 20, 'g');
  const std::string whole = encode(request);
  for (const std::string& part : parts_of(whole)) {
    EXPECT_TRUE(
        peer.write_frame(std::string_view(part).substr(0, part.size() / 2), false, part.size()));
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_TRUE(peer.write(std::string_view(part).substr(part.size() / 2)));
  }
  EXPECT_TRUE(peer.write_frame(encode(StatsRequest{7})));
  (void)peer.read_frame();  // Welcome
  const auto reply = decode(peer.read_frame());
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(std::get<StatsReply>(*reply).request, 7u);
  EXPECT_EQ(server.malformed(), 0);
}

TEST(Parts, ALargeMessageIsItsPartsAndNothingElse) {
  CompileRequest request;
  request.graph_text = std::string(1 << 20, 'g');
  const std::string whole = encode(request);
  PartAssembly assembly;
  std::optional<Message> message;
  for (const std::string& part : parts_of(whole)) {
    EXPECT_LE(part.size(), kMaxFrameBytes);
    EXPECT_FALSE(message.has_value());
    auto added = assembly.add(part);
    ASSERT_TRUE(added.has_value()) << added.error().message;
    message = *std::move(added);
  }
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(std::get<CompileRequest>(*message).graph_text, request.graph_text);
  EXPECT_EQ(assembly.bytes(), 0u);
}

TEST(Parts, RefusesMoreThanAMessageMayBe) {
  PartAssembly assembly;
  const std::string part = encode(MessagePart{std::string(kPartBytes, 'x'), false});
  size_t taken = 0;
  while (assembly.add(part)) ++taken;
  EXPECT_EQ(taken, kMaxMessageBytes / kPartBytes);
}

TEST(Parts, RefusesPartsOfPartsAndPartsOfNonsense) {
  PartAssembly assembly;
  EXPECT_FALSE(assembly.add(encode(MessagePart{encode(MessagePart{"x", true}), true})).has_value());
  EXPECT_FALSE(assembly.add(encode(MessagePart{"no message at all", true})).has_value());
  EXPECT_FALSE(assembly.add(std::string(kMaxFrameBytes + 8, '\0')).has_value());
}

}  // namespace
}  // namespace kiln
