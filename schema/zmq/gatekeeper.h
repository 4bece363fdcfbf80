// Gatekeeper answers ZeroMQ's question whether a connection's public key may come in (ZAP, RFC 27).
// It has a thread of its own, so that handshakes never wait for the coordinator's loop. Every
// message of the connection then carries that key as its User-Id.
#pragma once

#include <memory>
#include <thread>

#include "schema/keys/keyring.h"

namespace zmq {
class context_t;
class socket_t;
}  // namespace zmq

namespace kiln {

class SocketWake;

class Gatekeeper {
 public:
  static constexpr char kDomain[] = "kiln";

  // Answers from the end of the constructor on. REQUIRES: `context` has no other and outlives it.
  Gatekeeper(zmq::context_t& context, std::shared_ptr<const Keyring> keyring);
  ~Gatekeeper();

 private:
  void run();
  void answer();

  const std::shared_ptr<const Keyring> keyring_;
  const std::unique_ptr<zmq::socket_t> questions_;  // used by the thread while it runs
  const std::unique_ptr<SocketWake> stop_;
  std::thread thread_;
};

}  // namespace kiln
