#include "coordinator/redis/resp.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

using Words = std::vector<std::string>;
constexpr size_t kMost = 1024;

TEST(Resp, ReadsRequestsHoweverTheyArrive) {
  const std::string both = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n*1\r\n$4\r\nPING\r\n";
  for (size_t piece = 1; piece <= both.size(); ++piece) {
    RespReader reader;
    std::vector<Words> requests;
    for (size_t at = 0; at < both.size(); at += piece) {
      reader.add(std::string_view(both).substr(at, piece));
      for (auto next = reader.next(kMost); next && *next; next = reader.next(kMost))
        requests.push_back(**next);
    }
    EXPECT_EQ(requests, (std::vector<Words>{{"SET", "k", "a\r\nb"}, {"PING"}})) << piece;
    EXPECT_EQ(reader.held(), 0u);
  }
}

TEST(Resp, RefusesWhatIsNoRequestBeforeItTakesMemory) {
  for (const char* bad : {"PING\r\n", "*0\r\n", "*-1\r\n", "*33\r\n", "*1\r\n$1025\r\n",
                          "*1\r\n$-1\r\n", "*2\r\n$1000\r\n", "*1\r\n:1\r\n", "*1\r\n$1\r\nabc",
                          "*99999999999999999999\r\n", "*1111111111111111111111111", "*1x\r\n"}) {
    RespReader reader;
    reader.add(bad);
    if (std::string_view(bad) == "*2\r\n$1000\r\n")
      reader.add(std::string(1000, 'x') + "\r\n$25\r\n");
    const auto next = reader.next(kMost);
    ASSERT_FALSE(next) << bad;
    EXPECT_EQ(next.error().code, Code::kInvalidArgument);
  }
}

TEST(Resp, RepliesAreAsEachVersionHasThem) {
  EXPECT_EQ(resp_ok(), "+OK\r\n");
  EXPECT_EQ(resp_error("two\r\nlines"), "-ERR two  lines\r\n");
  EXPECT_EQ(resp_bytes(std::string_view("a\0b", 3)), std::string("$3\r\na\0b\r\n", 9));
  EXPECT_EQ(resp_nothing(RespVersion::k2), "$-1\r\n");
  EXPECT_EQ(resp_nothing(RespVersion::k3), "_\r\n");
  EXPECT_TRUE(resp_hello(RespVersion::k3).starts_with("%4\r\n$6\r\nserver\r\n"));
  EXPECT_NE(resp_hello(RespVersion::k3).find("$5\r\nproto\r\n:3\r\n"), std::string::npos);
}

}  // namespace
}  // namespace kiln
