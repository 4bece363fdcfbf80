#include "worker/runner/protocol.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

namespace kiln::runner {
namespace {

class FrameSocket : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends_), 0); }
  void TearDown() override {
    for (const int end : ends_)
      if (end >= 0) ::close(end);
  }
  static std::string frame(const std::string& body) {
    const uint32_t size = static_cast<uint32_t>(body.size());
    return std::string(reinterpret_cast<const char*>(&size), sizeof size) + body;
  }
  int ends_[2] = {-1, -1};
};

TEST_F(FrameSocket, CarriesFramesLargerThanTheSocketBuffer) {
  const std::string large(5 << 20, 'x');
  std::thread sender([&] { EXPECT_TRUE(send_frame(ends_[0], frame(large), 60'000)); });
  EXPECT_EQ(receive_frame(ends_[1], 60'000), large);
  sender.join();
}

TEST_F(FrameSocket, SilenceEndsInTheDeadline) {
  EXPECT_EQ(receive_frame(ends_[1], 10).error().code, Code::kDeadlineExceeded);
  ASSERT_TRUE(send_frame(ends_[0], frame("half").substr(0, 6), 100));
  EXPECT_EQ(receive_frame(ends_[1], 10).error().code, Code::kDeadlineExceeded);
}

TEST_F(FrameSocket, AReaderThatDoesNotReadEndsInTheDeadline) {
  EXPECT_EQ(send_frame(ends_[0], frame(std::string(32 << 20, 'x')), 20).error().code,
            Code::kDeadlineExceeded);
}

TEST_F(FrameSocket, AClosedEndIsUnavailable) {
  ::close(std::exchange(ends_[0], -1));
  EXPECT_EQ(receive_frame(ends_[1], 1000).error().code, Code::kUnavailable);
  EXPECT_EQ(send_frame(ends_[1], frame("x"), 1000).error().code, Code::kUnavailable);
}

TEST_F(FrameSocket, SizesBeyondBoundsAreCorruptionBeforeAnythingIsAllocated) {
  for (const uint32_t size : {0u, static_cast<uint32_t>(kMaxFrameBytes) + 1, UINT32_MAX}) {
    const std::string head(reinterpret_cast<const char*>(&size), sizeof size);
    ASSERT_TRUE(send_frame(ends_[0], head, 1000));
    EXPECT_EQ(receive_frame(ends_[1], 1000).error().code, Code::kCorruption);
  }
}

}  // namespace
}  // namespace kiln::runner
