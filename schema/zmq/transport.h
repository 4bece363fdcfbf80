// Transport: Messages over ZeroMQ. Listener is the coordinator's ROUTER side, Connection a client's
// or worker's DEALER side. Each object belongs to one thread, except the wake() functions.
//
// libzmq bounds whole messages and cannot close one connection. This folder bounds the rest, for
// peers that may be hostile and a process that must not grow with them. The listener promises:
//   - Malformed frames never reach the caller: they are counted, and their sender is dropped.
//   - A frame has at most kMaxFrameBytes, a message kMaxMessageBytes (codec.h); messages that are
//     begun and not ended have a bound per process.
//   - What libzmq keeps of received bytes, and what waits for slow readers, is bounded per
//     connection and for all together (wire_watch.h, backlog.h). Whoever exceeds it is dropped.
//   - Connections that never say anything shut nobody out, and one key cannot take every place.
//   - send() never blocks; alive(), send() and take_gone() tell that a peer is gone.
//
// With keys both ends speak CURVE: traffic is encrypted, the coordinator is proven by the key that
// clients pin, and every peer by a key in the coordinator's list (keyring.h). Without keys traffic
// is in the clear, and only on loopback.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schema/keys/key_file.h"
#include "schema/messages.h"

namespace kiln {

class Keyring;

// "tcp://HOST:PORT" taken apart. HOST is a name, an IPv4 address, or an IPv6 one in brackets; `*`
// stands for every interface of this machine.
struct Endpoint {
  std::string address;  // as ZeroMQ takes it
  bool loopback = false;
  bool ipv6 = false;
};
Result<Endpoint> parse_endpoint(const std::string& endpoint);  // kInvalidArgument
// "tcp://a:7557,tcp://b:7557" taken apart: the coordinators of one store. kInvalidArgument.
Result<std::vector<std::string>> parse_endpoints(const std::string& list);

using PeerId = std::string;  // opaque, as the ROUTER names it; one connection, never used again

struct Received {
  PeerId peer;
  Message message;
  User user{};  // the owner of the key it came under; without keys: no name, every right
};

// A received frame. Valid until the listener is asked for the next, or its peer is dropped.
struct Arrival {
  const PeerId& peer;
  const User& user;
  std::string_view frame;
  bool several;  // several frames in one ZeroMQ message: malformed
  std::chrono::steady_clock::time_point at;
};

class Listener {
 public:
  // `endpoint` "tcp://127.0.0.1:0" picks a port, "tcp://0.0.0.0:7557" is every interface.
  // kPermissionDenied on anything but loopback when there is no `keyring`. Beyond
  // `max_connections`, the oldest connection that never said anything is dropped for each new one.
  // Default: as many as the process has descriptors for, less some for its files, and at most
  // kMaxConnections. One key has at most three quarters of them.
  static Result<std::unique_ptr<Listener>> bind(const std::string& endpoint,
                                                std::shared_ptr<Keyring> keyring = nullptr,
                                                size_t max_connections = 0);
  static constexpr size_t kMaxConnections = 20'000;
  ~Listener();
  const std::string& endpoint() const;  // with the port that was picked

  // The next message. Nothing after `timeout_ms` or wake(), and now and then earlier.
  std::optional<Received> receive(int timeout_ms);
  // The same in two steps, for callers that may know a frame without decoding it: the next frame;
  // then the message it completes, or nothing when it is a part of one, or malformed.
  std::optional<Arrival> arrive(int timeout_ms);
  std::optional<Received> read(const Arrival& arrival);
  // Never blocks: queued per peer up to a bound, then the peer is dropped (false). Also false when
  // the peer is gone, or the message is larger than a message may be.
  bool send(const PeerId& peer, const Message& message);
  bool send_encoded(const PeerId& peer, std::string_view frame);  // made by encode()
  // Frames sent to `peer` wait here: hold back what can wait (blobs).
  bool congested(const PeerId& peer) const;
  bool alive(const PeerId& peer);  // still connected
  // Ends its connection; nothing it sent is delivered any more.
  void drop(const PeerId& peer);
  // Peers that were heard and whose connections ended since the last call, by either end.
  std::vector<PeerId> take_gone();
  // Reads the list of keys again if it was changed, and drops peers whose key was removed or got
  // another name or role. Returns whether it was changed; kInvalidArgument when it cannot be read,
  // and then nothing changes.
  Result<bool> refresh_keys();
  bool takes_keys() const;
  // The owner of the key of this name, from any thread; nothing when there is none.
  std::optional<User> user_named(std::string_view name) const;
  void wake();  // from any thread: receive() returns soon
  // Frames that did not decode and handshakes that failed, so far. From any thread.
  int64_t malformed_count() const;

 private:
  struct Impl;
  explicit Listener(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct ConnectOptions {
  std::optional<ClientKey> key;   // none: in the clear, on loopback
  std::string token{};            // Welcome.session of the previous connection; empty: none
  TemplateVersions templates{};   // a worker's: Hello.templates
  std::string first{};            // of several coordinators, the one to try first; empty: any
  bool follower_will_do = false;  // else only the coordinator that leads
};

// A Connection does not outlive its TCP connection: when the coordinator goes away or restarts,
// send and receive answer kUnavailable from then on, and the owner opens another.
class Connection {
 public:
  // Says Hello and waits for Welcome. `endpoints`: one, or several coordinators of one store, which
  // are tried in turn, again and again, until one answers that will do. One that nobody listens at
  // costs no time, one that is silent its part of `timeout_ms`. kUnavailable when nobody answers
  // within `timeout_ms`; kInvalidArgument on a refused version; kPermissionDenied when the
  // coordinator does not know the key, or only one of the two has keys: of several, when all say so.
  static Result<std::unique_ptr<Connection>> open(const std::string& endpoints, Role role,
                                                  int timeout_ms,
                                                  const ConnectOptions& options = {});
  ~Connection();
  const Welcome& welcome() const;
  const std::string& endpoint() const;  // whose it is

  // kUnavailable when the peer does not take it within `timeout_ms`.
  Status send(const Message& message, int timeout_ms = kSendTimeoutMs);
  static constexpr int kSendTimeoutMs = 5000;
  // kDeadlineExceeded after `timeout_ms`; kUnavailable when the peer is gone (no ZMTP heartbeat).
  Result<Message> receive(int timeout_ms);
  void wake();  // from any thread: receive() returns kDeadlineExceeded

 private:
  struct Impl;
  explicit Connection(std::unique_ptr<Impl> impl);
  // `gives_up`: as soon as nobody listens there.
  static Result<std::unique_ptr<Connection>> open_one(const std::string& endpoint, Role role,
                                                      int timeout_ms, bool gives_up,
                                                      const ConnectOptions& options);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
