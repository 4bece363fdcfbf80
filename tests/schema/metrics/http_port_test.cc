// Over raw sockets: what matters is what a peer that is no HTTP library can do.
#include "schema/metrics/http_port.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/support/http_get.h"

namespace kiln {
namespace {

class HttpPortTest : public ::testing::Test {
 protected:
  void open(HttpLimits limits = {}) {
    auto opened = HttpPort::open(
        "127.0.0.1:0",
        [this](std::string_view path) {
          ++asked_;
          return HttpAnswer{path == "/here" ? 200u : 404u, "text/plain",
                            "page " + std::string(path)};
        },
        limits);
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    port_ = *std::move(opened);
  }
  std::string ask(const std::string& request) const {
    const HttpPeer peer(port_->endpoint());
    EXPECT_TRUE(peer.say(request));
    return peer.hear();
  }
  std::string get(const std::string& path) const { return http_get(port_->endpoint(), path); }

  std::atomic<int> asked_{0};
  std::unique_ptr<HttpPort> port_;
};

TEST_F(HttpPortTest, AnswersAndClosesTheConnection) {
  open();
  EXPECT_TRUE(port_->endpoint().starts_with("http://127.0.0.1:"));
  const std::string here = get("/here");
  EXPECT_TRUE(here.starts_with("HTTP/1.1 200")) << here;
  EXPECT_TRUE(here.ends_with("page /here")) << here;
  EXPECT_TRUE(get("/there").starts_with("HTTP/1.1 404"));
}

TEST_F(HttpPortTest, OtherMethodsAndOversizedOrBrokenRequestsNeverReachThePages) {
  HttpLimits limits;
  limits.age_ms = 200;  // the last of them waits for more, and is not told more
  open(limits);
  EXPECT_TRUE(ask("POST /here HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
                  .starts_with("HTTP/1.1 405"));
  const std::string large =
      ask("GET /here HTTP/1.1\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n");
  EXPECT_FALSE(large.starts_with("HTTP/1.1 200")) << large;
  EXPECT_FALSE(ask("\x16\x03\x01 hello\r\n\r\n").starts_with("HTTP/1.1 200"));
  EXPECT_EQ(asked_, 0);
}

// Forty peers that connect and say a byte now and then take every place there is, for a while.
TEST_F(HttpPortTest, SlowPeersAreCutOffByTheirAge) {
  HttpLimits limits;
  limits.connections = 8;
  limits.age_ms = 100;
  open(limits);
  std::vector<std::unique_ptr<HttpPeer>> slow;
  for (int i = 0; i < 40; ++i) slow.push_back(std::make_unique<HttpPeer>(port_->endpoint()));
  std::atomic<bool> answered = false;
  std::thread dripping([&] {
    while (!answered) {
      for (const auto& caller : slow) caller->say("G");
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  EXPECT_TRUE(get("/here").starts_with("HTTP/1.1 200"));
  answered = true;
  dripping.join();
}

TEST_F(HttpPortTest, EndsWhilePeersAreConnected) {
  open();
  const HttpPeer idle(port_->endpoint());
  port_.reset();
  EXPECT_EQ(idle.hear(), "");
}

TEST_F(HttpPortTest, RefusesWhatIsNoAddressAndWhatIsTaken) {
  open();
  const auto pages = [](std::string_view) { return HttpAnswer{}; };
  for (const char* bad : {"", "9557", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000", "host.name:1",
                          "127.0.0.1:1x", "[::1:80"}) {
    const auto opened = HttpPort::open(bad, pages);
    ASSERT_FALSE(opened.has_value()) << bad;
    EXPECT_EQ(opened.error().code, Code::kInvalidArgument) << bad;
  }
  const auto second = HttpPort::open(port_->endpoint().substr(7), pages);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace kiln
