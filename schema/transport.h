// Transport: Messages over ZeroMQ. Listener is the coordinator's ROUTER side, Connection a client's
// or worker's DEALER side. Each object belongs to one thread, except the wake() functions.
// Malformed frames never reach the caller: the listener counts them and drops the peer.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "schema/messages.h"

namespace kiln {

using PeerId = std::string;  // opaque, as the ROUTER names it

struct Received {
  PeerId peer;
  Message message;
};

class Listener {
 public:
  // `endpoint` "tcp://127.0.0.1:0" picks a port. First light speaks NULL security:
  // kPermissionDenied on anything but loopback.
  static Result<std::unique_ptr<Listener>> bind(const std::string& endpoint);
  ~Listener();
  const std::string& endpoint() const;  // with the port that was picked

  // The next message, or nothing after `timeout_ms` or wake().
  std::optional<Received> receive(int timeout_ms);
  // Never blocks: queued per peer up to a bound, then the peer is dropped (false). Also false when
  // the peer is gone, or the message is larger than a message may be.
  bool send(const PeerId& peer, const Message& message);
  // Some of what was sent to `peer` waits here: hold back what can wait (blobs).
  bool congested(const PeerId& peer) const;
  // Whether the peer is still connected; costs it an empty frame, which it ignores.
  bool alive(const PeerId& peer);
  void wake();  // from any thread: receive() returns soon
  // Frames that did not decode and handshakes that failed, so far. From any thread.
  int64_t malformed_count() const;

 private:
  struct Impl;
  explicit Listener(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A Connection does not outlive its TCP connection: when the coordinator goes away or restarts,
// send and receive answer kUnavailable from then on, and the owner opens another.
class Connection {
 public:
  // Says Hello and waits for Welcome. kUnavailable when nobody answers within `timeout_ms`;
  // kInvalidArgument on a refused version.
  static Result<std::unique_ptr<Connection>> open(const std::string& endpoint, Role role,
                                                  int timeout_ms);
  ~Connection();
  const Welcome& welcome() const;

  Status send(const Message& message);  // kUnavailable when the peer does not take it
  // kDeadlineExceeded after `timeout_ms`; kUnavailable when the peer is gone (no ZMTP heartbeat).
  Result<Message> receive(int timeout_ms);
  void wake();  // from any thread: receive() returns kDeadlineExceeded

 private:
  struct Impl;
  explicit Connection(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
