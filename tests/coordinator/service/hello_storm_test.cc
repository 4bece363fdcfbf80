// Hello again and again on one connection: each time a session is forgotten and another made.
#include <gtest/gtest.h>

#include "coordinator/service/service.h"
#include "schema/codec.h"
#include "tests/support/raw_peer.h"

namespace kiln {
namespace {

TEST(HelloStorm, AConnectionThatDoesNotStopSayingHelloIsEnded) {
  const TempDir dir = TempDir::create("kiln-hello").value();
  ServiceOptions options;
  options.data_dir = dir.path() / "data";
  const auto service = Service::start(std::move(options)).value();
  RawPeer peer(service->endpoint());
  peer.shake_hands();
  const std::string hello = encode(Hello{kProtocolVersion, Role::kClient, "test"});
  int welcomes = 0;
  for (int i = 0; i < 16; ++i) {
    ASSERT_TRUE(peer.write_frame(hello));
    const auto message = decode(peer.read_frame());
    welcomes += message && std::holds_alternative<Welcome>(*message) ? 1 : 0;
  }
  EXPECT_EQ(welcomes, 16);
  peer.write_frame(hello);
  EXPECT_TRUE(peer.closed_by_peer());
  RawPeer other(service->endpoint());
  other.shake_hands();
  EXPECT_TRUE(other.write_frame(hello));
  EXPECT_TRUE(decode(other.read_frame()).has_value());
}

}  // namespace
}  // namespace kiln
