// EchoServer: a listener that answers Hello with Welcome and every StatsRequest with a StatsReply.
// Header only, for tests.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "schema/keys/keyring.h"
#include "schema/zmq/transport.h"
#include "tests/schema/sample_messages.h"
#include "tests/support/loopback.h"

namespace kiln {

constexpr int kPatienceMs =
    60'000;  // with what comes at once on a machine that does not stand still

template <class Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < kPatienceMs / 10; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return condition();
}

class EchoServer {
 public:
  static constexpr char kAnyPort[] = "tcp://127.0.0.1:0";
  // At an endpoint that is nobody else's before and after it.
  explicit EchoServer(const std::string& endpoint = free_endpoint(),
                      std::shared_ptr<Keyring> keyring = nullptr, size_t max_connections = 0) {
    auto bound = Listener::bind(endpoint, std::move(keyring), max_connections);
    EXPECT_TRUE(bound.has_value()) << (bound ? "" : bound.error().message);
    listener_ = *std::move(bound);
    thread_ = std::thread([this] { run(); });
  }
  ~EchoServer() {
    stopping_ = true;
    listener_->wake();
    thread_.join();
  }
  const std::string& endpoint() const { return listener_->endpoint(); }
  int64_t malformed() const { return listener_->malformed_count(); }
  std::string last_user() const {
    const std::lock_guard lock(mutex_);
    return last_user_.name + ":" + std::string(to_string(last_user_.grant));
  }
  size_t gone() const { return gone_; }
  void refresh_keys() {
    refresh_ = true;
    listener_->wake();
  }

 private:
  void run() {
    while (!stopping_) {
      if (refresh_.exchange(false)) {
        EXPECT_TRUE(listener_->refresh_keys().has_value());
      }
      const auto received = listener_->receive(50);
      gone_ += listener_->take_gone().size();
      if (!received) continue;
      {
        const std::lock_guard lock(mutex_);
        last_user_ = received->user;
      }
      if (std::get_if<Hello>(&received->message) != nullptr) {
        listener_->send(received->peer, Welcome{kProtocolVersion, "test", sample_digest("stamp")});
      } else if (const auto* asked = std::get_if<StatsRequest>(&received->message)) {
        listener_->send(received->peer, StatsReply{asked->request, {}});
      }
    }
  }

  std::unique_ptr<Listener> listener_;
  std::atomic<bool> stopping_{false}, refresh_{false};
  std::atomic<size_t> gone_{0};
  mutable std::mutex mutex_;
  User last_user_;  // guarded by mutex_
  std::thread thread_;
};

inline bool answers(Connection& connection, uint64_t request) {
  if (!connection.send(StatsRequest{request})) return false;
  const auto reply = connection.receive(kPatienceMs);
  const auto* stats = reply ? std::get_if<StatsReply>(&*reply) : nullptr;
  return stats != nullptr && stats->request == request;
}

// A new connection is answered.
inline void expect_serving(const EchoServer& server) {
  auto connection = Connection::open(server.endpoint(), Role::kClient, kPatienceMs);
  ASSERT_TRUE(connection.has_value()) << connection.error().message;
  EXPECT_TRUE(answers(**connection, 99));
}

}  // namespace kiln
