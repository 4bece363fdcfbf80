// ScriptedService: a coordinator played by hand. It greets who says Hello, and does with every other
// message what the test says, on a thread of its own.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "schema/keys/keyring.h"
#include "schema/zmq/transport.h"
#include "tests/support/loopback.h"

namespace kiln::testing {

class ScriptedService {
 public:
  using Answer = std::function<void(Listener& listener, const Received& received)>;

  explicit ScriptedService(Answer answer, const std::string& endpoint = free_endpoint(),
                           std::shared_ptr<Keyring> keyring = nullptr)
      : answer_(std::move(answer)),
        listener_(Listener::bind(endpoint, std::move(keyring)).value()) {
    thread_ = std::thread([this] { serve(); });
  }
  ~ScriptedService() {
    stopping_ = true;
    listener_->wake();
    thread_.join();
  }
  const std::string& endpoint() const { return listener_->endpoint(); }

 private:
  void serve() {
    while (!stopping_) {
      const auto received = listener_->receive(50);
      if (!received) continue;
      if (std::holds_alternative<Hello>(received->message))
        listener_->send(received->peer, Welcome{kProtocolVersion, "test", {}});
      answer_(*listener_, *received);
    }
  }

  const Answer answer_;
  const std::unique_ptr<Listener> listener_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

// The reply to `request` with this outcome and no program.
inline CompileReply reply_to(const CompileRequest& request, Result<CacheOutcome> outcome) {
  CompileReply reply;
  reply.request = request.request;
  reply.outcome = std::move(outcome);
  return reply;
}

}  // namespace kiln::testing
