// Transport: Messages over ZeroMQ. Listener is the coordinator's ROUTER side, Connection a client's
// or worker's DEALER side. Each object belongs to one thread, except the wake() functions.
// Malformed frames never reach the caller: the listener counts them and drops the peer.
//
// With keys both ends speak CURVE: encrypted, the coordinator proven by the key that clients pin,
// and everybody else by a key that the coordinator's list has (keyring.h). Without keys they speak
// in the clear, and only on loopback.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schema/key_file.h"
#include "schema/messages.h"

namespace kiln {

class Keyring;

using PeerId = std::string;  // opaque, as the ROUTER names it; one connection, never used again

struct Received {
  PeerId peer;
  Message message;
  User user{};  // whose key the message came under; without keys: nobody, who may do everything
};

// A frame as it came. Valid until the listener is asked for the next, or its peer is dropped.
struct Arrival {
  const PeerId& peer;
  const User& user;
  std::string_view frame;
  bool several;  // frames in one message, which is no message of ours
  std::chrono::steady_clock::time_point at;
};

class Listener {
 public:
  // `endpoint` "tcp://127.0.0.1:0" picks a port, "tcp://0.0.0.0:7557" is every interface.
  // kPermissionDenied on anything but loopback when there is no `keyring`. Of more than
  // `max_connections` those that were never heard go, the oldest first, so that connections which
  // say nothing shut nobody out; by default as many as the process has descriptors for, less some
  // for its files, and at most kMaxConnections. One key has at most three quarters
  // of them.
  static Result<std::unique_ptr<Listener>> bind(const std::string& endpoint,
                                                std::shared_ptr<Keyring> keyring = nullptr,
                                                size_t max_connections = 0);
  static constexpr size_t kMaxConnections = 20'000;
  ~Listener();
  const std::string& endpoint() const;  // with the port that was picked

  // The next message, or nothing after `timeout_ms` or wake(), or now and then before.
  std::optional<Received> receive(int timeout_ms);
  // The same in two steps, for who may know what a frame says without decoding it: the next frame;
  // and the message it completes, or nothing when it is a part of one, or malformed.
  std::optional<Arrival> arrive(int timeout_ms);
  std::optional<Received> read(const Arrival& arrival);
  // Never blocks: queued per peer up to a bound, then the peer is dropped (false). Also false when
  // the peer is gone, or the message is larger than a message may be.
  bool send(const PeerId& peer, const Message& message);
  bool send_encoded(const PeerId& peer, std::string_view frame);  // of encode()
  // Some of what was sent to `peer` waits here: hold back what can wait (blobs).
  bool congested(const PeerId& peer) const;
  bool alive(const PeerId& peer);  // still connected
  // Ends its connection; nothing it sent is delivered any more.
  void drop(const PeerId& peer);
  // Peers that were heard and whose connections ended since the last call, whoever ended them.
  std::vector<PeerId> take_gone();
  // Reads the list of keys again if it was changed, and drops whoever has no place on it any more
  // or another one. Whether it was; kInvalidArgument when it cannot be read, and then nothing
  // changes.
  Result<bool> refresh_keys();
  void wake();  // from any thread: receive() returns soon
  // Frames that did not decode and handshakes that failed, so far. From any thread.
  int64_t malformed_count() const;
  int64_t connection_count() const;  // TCP connections, whatever became of their handshakes

 private:
  struct Impl;
  explicit Listener(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct ConnectOptions {
  std::optional<ClientKey> key;  // none: in the clear, on loopback
  std::string token{};           // Welcome.session of the connection before; empty: none
};

// A Connection does not outlive its TCP connection: when the coordinator goes away or restarts,
// send and receive answer kUnavailable from then on, and the owner opens another.
class Connection {
 public:
  // Says Hello and waits for Welcome. kUnavailable when nobody answers within `timeout_ms`;
  // kInvalidArgument on a refused version; kPermissionDenied when the coordinator does not know the
  // key, or only one of the two has keys.
  static Result<std::unique_ptr<Connection>> open(const std::string& endpoint, Role role,
                                                  int timeout_ms,
                                                  const ConnectOptions& options = {});
  ~Connection();
  const Welcome& welcome() const;

  // kUnavailable when the peer does not take it within `timeout_ms`.
  Status send(const Message& message, int timeout_ms = kSendTimeoutMs);
  static constexpr int kSendTimeoutMs = 5000;
  // kDeadlineExceeded after `timeout_ms`; kUnavailable when the peer is gone (no ZMTP heartbeat).
  Result<Message> receive(int timeout_ms);
  void wake();  // from any thread: receive() returns kDeadlineExceeded

 private:
  struct Impl;
  explicit Connection(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
