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
  open();
  EXPECT_TRUE(ask("POST /here HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
                  .starts_with("HTTP/1.1 405"));
  const std::string large =
      ask("GET /here HTTP/1.1\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n");
  EXPECT_TRUE(large.starts_with("HTTP/1.1 431")) << large;
  EXPECT_TRUE(ask("\x16\x03\x01 hello\r\n\r\n").starts_with("HTTP/1.1 400"));
  EXPECT_TRUE(ask("GET here HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400"));
  EXPECT_TRUE(ask("GET /here\r\n\r\n").starts_with("HTTP/1.1 400"));
  EXPECT_EQ(asked_, 0);
}

TEST_F(HttpPortTest, AHeadAnswersWithoutABodyAndAQueryIsNoPartOfAPath) {
  open();
  const std::string head = ask("HEAD /here?x=1 HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(head.starts_with("HTTP/1.1 200")) << head;
  EXPECT_TRUE(head.find("Content-Length: 10\r\n") != std::string::npos) << head;
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
}

TEST_F(HttpPortTest, AHeadThatDoesNotComeInTimeIsAnsweredSo) {
  HttpLimits limits;
  limits.head_ms = 50;
  open(limits);
  EXPECT_TRUE(ask("GET /here HTTP/1.1\r\n").starts_with("HTTP/1.1 408"));
  EXPECT_EQ(asked_, 0);
}

// Sixty-four peers of one address that say a byte now and then, and come back when they are cut
// off. None of them is cut off by its age here: a probe gets a place because it is new.
TEST_F(HttpPortTest, SlowPeersDoNotKeepAProbeOut) {
  HttpLimits limits;
  limits.head_ms = limits.age_ms = 3'600'000;
  open(limits);
  std::atomic<bool> over = false;
  std::vector<std::thread> slow;
  for (int i = 0; i < 64; ++i)
    slow.emplace_back([&] {
      while (!over) {
        const HttpPeer peer(port_->endpoint());
        for (int byte = 0; byte < 100 && !over && peer.say("G"); ++byte)
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    });
  for (int probe = 0; probe < 25; ++probe)
    EXPECT_TRUE(get("/here").starts_with("HTTP/1.1 200")) << "probe " << probe;
  over = true;
  for (std::thread& each : slow) each.join();
}

TEST_F(HttpPortTest, EndsWhilePeersAreConnected) {
  HttpLimits limits;
  limits.head_ms = limits.age_ms = 3'600'000;
  open(limits);
  const HttpPeer idle(port_->endpoint());
  ASSERT_TRUE(idle.say("G"));  // the kernel keeps those that say nothing
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

// Answers come from another thread, after the request is long read.
class HttpHandlerTest : public ::testing::Test {
 protected:
  void serve(HttpLimits limits = {}) {
    auto opened = HttpPort::serve(
        "127.0.0.1:0",
        [this](HttpRequest request, const HttpPort::Reply& reply) {
          if (request.path == "/stream") {
            HttpAnswer answer{200, "text/event-stream", "retry: 5000\n\n"};
            answer.stream = true;
            return reply(std::move(answer));
          }
          if (request.path == "/never") return;
          if (request.path == "/now") return reply(plain_answer(200, "now"));
          later_.emplace_back([request = std::move(request), reply] {
            reply(plain_answer(200, request.method + " " + request.path + " " + request.query +
                                        " " + std::string(request.header("x-name")) + " " +
                                        request.body + " " + request.peer));
          });
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
  void TearDown() override {
    port_.reset();
    for (std::thread& thread : later_) thread.join();
  }
  std::vector<std::thread> later_;  // made on the port's thread, which ends first
  std::unique_ptr<HttpPort> port_;
};

TEST_F(HttpHandlerTest, GetsAllOfARequestAndAnswersFromAnyThread) {
  serve();
  const std::string said =
      ask("POST /act?x=1 HTTP/1.1\r\nHost: x\r\nX-Name:  a b \r\nContent-Length: 5\r\n\r\nhello");
  EXPECT_TRUE(said.ends_with("POST /act x=1 a b hello 127.0.0.1\n")) << said;
  EXPECT_TRUE(ask("GET / HTTP/1.1\r\n\r\n").find("GET /") != std::string::npos);
}

TEST_F(HttpHandlerTest, BodiesAreBoundedAndWhole) {
  HttpLimits limits;
  limits.head_ms = 50;
  serve(limits);
  const auto post = [this](const std::string& headers, const std::string& body) {
    return ask("POST /act HTTP/1.1\r\n" + headers + "\r\n" + body);
  };
  EXPECT_TRUE(post("Content-Length: 99999\r\n", "").starts_with("HTTP/1.1 413"));
  EXPECT_TRUE(post("Content-Length: -1\r\n", "").starts_with("HTTP/1.1 400"));
  EXPECT_TRUE(post("Transfer-Encoding: chunked\r\n", "0\r\n\r\n").starts_with("HTTP/1.1 400"));
  EXPECT_TRUE(post("Content-Length: 50\r\n", "short").starts_with("HTTP/1.1 408"));
  EXPECT_TRUE(post("no header\r\n", "").starts_with("HTTP/1.1 400"));
  EXPECT_TRUE(ask("DELETE / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
}

TEST_F(HttpHandlerTest, AStreamStaysOpenAndHearsWhatIsPublished) {
  HttpLimits limits;
  limits.streams = 1;
  limits.age_ms = 200;
  limits.stream_age_ms = 3'600'000;
  serve(limits);
  const HttpPeer watcher(port_->endpoint());
  ASSERT_TRUE(watcher.say("GET /stream HTTP/1.1\r\n\r\n"));
  while (port_->streams() == 0) std::this_thread::yield();
  EXPECT_TRUE(ask("GET /stream HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 503")) << "one is all";
  port_->publish("event: change\ndata: 1\n\n");
  const std::string heard = watcher.hear("data: 1\n\n");
  EXPECT_TRUE(heard.starts_with("HTTP/1.1 200")) << heard;
  EXPECT_EQ(heard.find("Content-Length"), std::string::npos);
  EXPECT_TRUE(heard.ends_with("retry: 5000\n\nevent: change\ndata: 1\n\n")) << heard;
}

TEST_F(HttpHandlerTest, AStreamEndsWithItsOwnAge) {
  HttpLimits limits;
  limits.age_ms = 100;
  limits.stream_age_ms = 400;
  serve(limits);
  const auto begun = std::chrono::steady_clock::now();
  const std::string heard = ask("GET /stream HTTP/1.1\r\n\r\n");
  EXPECT_GE(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds(400));
  EXPECT_TRUE(heard.ends_with("retry: 5000\n\n")) << heard;
}

TEST_F(HttpHandlerTest, WhatIsNeverAnsweredEndsWithItsAge) {
  HttpLimits limits;
  limits.age_ms = 100;
  serve(limits);
  EXPECT_EQ(ask("GET /never HTTP/1.1\r\n\r\n"), "");
  EXPECT_TRUE(ask("GET /now HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
}

}  // namespace
}  // namespace kiln
