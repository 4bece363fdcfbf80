// Gatekeeper: answers ZeroMQ's question whether a connection's public key may come in (ZAP, RFC
// 27), in a thread of its own, so that handshakes never wait for the coordinator's loop. A message
// that comes in later carries the key it was asked about as its User-Id.
#pragma once

#include <memory>
#include <thread>

#include "schema/keyring.h"

namespace zmq {
class context_t;
class socket_t;
}  // namespace zmq

namespace kiln {

class SocketWake;

class Gatekeeper {
 public:
  static constexpr char kDomain[] = "kiln";

  // At its post before the constructor returns. REQUIRES: the only one of `context`, which outlives
  // it.
  Gatekeeper(zmq::context_t& context, std::shared_ptr<const Keyring> keyring);
  ~Gatekeeper();

 private:
  void run();
  void answer();

  const std::shared_ptr<const Keyring> keyring_;
  const std::unique_ptr<zmq::socket_t> questions_;  // the thread's, from its start to its end
  const std::unique_ptr<SocketWake> stop_;
  std::thread thread_;
};

}  // namespace kiln
