#include "schema/zmq/connection_table.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "compiler_core/base/check.h"

namespace kiln {
namespace {

// A connected socket at a descriptor that a test chooses, as the system chooses it anew.
class Socket {
 public:
  explicit Socket(int at = -1) {
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "two sockets");
    far_ = pair[1];
    near_ = pair[0];
    if (at < 0 || at == near_) return;
    if (far_ == at) far_ = dup(far_);
    CHECK(dup2(near_, at) == at, "a descriptor");
    close(near_);
    near_ = at;
  }
  ~Socket() {
    close(near_);
    close(far_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return near_; }

 private:
  int near_ = -1, far_ = -1;
};

PeerId peer_number(uint32_t number) {
  PeerId id(5, '\0');
  for (int i = 0; i < 4; ++i) id[4 - i] = static_cast<char>(number >> 8 * i);
  return id;
}

class ConnectionTableTest : public ::testing::Test {
 protected:
  PeerLink* bind(int fd, uint32_t peer) { return table_.bind(fd, peer_number(peer), "", User{}); }
  const PeerLink* find(uint32_t peer) { return table_.find(peer_number(peer)); }

  ConnectionTable table_;
};

TEST_F(ConnectionTableTest, WhatAPeerThatLeftStillSaysDoesNotTakeTheNextOnesConnection) {
  int fd = -1;
  {
    const Socket first;
    fd = first.fd();
    table_.accepted(fd);
    ASSERT_NE(bind(fd, 7), nullptr);
    table_.ended(fd);
  }
  EXPECT_EQ(table_.take_gone(), std::vector{peer_number(7)});
  EXPECT_EQ(bind(fd, 7), nullptr);
  const Socket second(fd);
  table_.accepted(fd);
  EXPECT_EQ(bind(fd, 7), nullptr);
  PeerLink* link = bind(fd, 8);
  ASSERT_NE(link, nullptr);
  EXPECT_EQ(find(8), link);
  EXPECT_EQ(find(7), nullptr);
  EXPECT_EQ(bind(fd, 7), nullptr);
  EXPECT_EQ(find(8)->peer, peer_number(8));
  EXPECT_EQ(table_.open(), 1u);
}

// Its connection had ended before it was heard at all.
TEST_F(ConnectionTableTest, TheNewerPeerOfADescriptorTakesItFromOneThatHadLeft) {
  const Socket socket;
  table_.accepted(socket.fd());
  ASSERT_NE(bind(socket.fd(), 0xffffffff), nullptr);
  ASSERT_NE(bind(socket.fd(), 0), nullptr) << "the count goes on past its end";
  EXPECT_EQ(find(0xffffffff), nullptr);
  EXPECT_EQ(table_.take_gone(), std::vector{peer_number(0xffffffff)});
  EXPECT_EQ(table_.open(), 1u);
  table_.ended(socket.fd());
  EXPECT_EQ(table_.take_gone(), std::vector{peer_number(0)});
  EXPECT_EQ(table_.size(), 0u);
}

TEST_F(ConnectionTableTest, AClosedDescriptorIsNoConnection) {
  int fd = -1;
  {
    const Socket socket;
    fd = socket.fd();
  }
  EXPECT_EQ(bind(fd, 1), nullptr);
  EXPECT_EQ(table_.size(), 0u);
  EXPECT_TRUE(table_.links().empty());
}

}  // namespace
}  // namespace kiln
