// A client's or worker's side. Beyond the settings in socket.h:
//   IMMEDIATE        a DEALER without a connection does not queue.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <zmq.hpp>

#include "compiler_core/base/clock.h"
#include "schema/codec.h"
#include "schema/zmq/socket.h"
#include "schema/zmq/transport.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

struct Connection::Impl {
  // Why the last handshake failed.
  enum class Trouble { kNone, kEnded, kMechanism, kUnknownKey };

  zmq::context_t context{1};
  zmq::socket_t dealer{context, zmq::socket_type::dealer};
  SocketMonitor monitor{context, dealer,
                        ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED |
                            ZMQ_EVENT_CONNECT_RETRIED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                            ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH};
  SocketWake wake;
  Welcome welcome;
  std::string endpoint;
  std::string key_name;  // empty: no key
  PartAssembly parts;
  bool connected = false;  // now
  bool gone = false;       // a connection ended, or never came to be
  bool refused = false;    // nobody listened, at least once
  Trouble trouble = Trouble::kNone;

  Status set_up(const Endpoint& parsed, const ConnectOptions& options);
  // Waits for any of `events` on the socket, a disconnect or a wake.
  void poll(short events, int timeout_ms);
  void watch_connection();
  // Sends Hello on the present connection. libzmq reports the end of a connection before it removes
  // its pipe, and frames sent in between are lost silently. Once the next connection is reported
  // and the socket has processed its commands, only the new pipe is left.
  bool say(const std::string& hello);
  // Nothing when there is no message now.
  std::optional<Result<Message>> take();
  Error unavailable() const {
    return {Code::kUnavailable, fmt::format("the coordinator at {} went away", endpoint), 0};
  }
  // The error, when the handshake shows that trying again is no use.
  std::optional<Error> hopeless() const;
  Error unanswered(int timeout_ms) const;
};

Status Connection::Impl::set_up(const Endpoint& parsed, const ConnectOptions& options) {
  set_common_options(dealer);
  dealer.set(zmq::sockopt::immediate, true);
  dealer.set(zmq::sockopt::reconnect_ivl, 20);
  dealer.set(zmq::sockopt::reconnect_ivl_max, 500);
  dealer.set(zmq::sockopt::ipv6, parsed.ipv6);
  if (options.key) {
    key_name = options.key->name;
    dealer.set(zmq::sockopt::curve_serverkey, options.key->server_key);
    dealer.set(zmq::sockopt::curve_publickey, options.key->pair.public_key);
    dealer.set(zmq::sockopt::curve_secretkey, options.key->pair.secret_key);
  }
  if (zmq_connect(dealer.handle(), parsed.address.c_str()) == 0) return {};
  return fail(Code::kInvalidArgument,
              fmt::format("cannot connect to {}: {}", endpoint, zmq_strerror(errno)));
}

void Connection::Impl::poll(short events, int timeout_ms) {
  zmq_pollitem_t items[] = {{dealer.handle(), 0, events, 0},
                            {monitor.handle(), 0, ZMQ_POLLIN, 0},
                            {nullptr, wake.fd(), ZMQ_POLLIN, 0}};
  zmq_poll(items, std::size(items), timeout_ms);
  watch_connection();
}

void Connection::Impl::watch_connection() {
  while (const auto event = monitor.take()) {
    if (event->number == ZMQ_EVENT_CONNECT_RETRIED) {
      refused = true;
      continue;
    }
    connected = event->number == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
    if (connected) continue;
    if (event->number == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) {
      trouble = Trouble::kUnknownKey;
    } else if (event->number == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL &&
               event->value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH) {
      trouble = Trouble::kMechanism;
    } else if (event->number != ZMQ_EVENT_DISCONNECTED && trouble == Trouble::kNone) {
      trouble = Trouble::kEnded;
    }
    gone = true;
  }
}

bool Connection::Impl::say(const std::string& hello) {
  (void)dealer.get(zmq::sockopt::events);
  return send_frame(dealer, hello) == Sent::kYes;
}

std::optional<Error> Connection::Impl::hopeless() const {
  if (trouble == Trouble::kUnknownKey) {
    return Error{Code::kPermissionDenied,
                 fmt::format("the coordinator at {} does not take the key of '{}': it was revoked, "
                             "or belongs to another coordinator; `kiln keys list` on its machine "
                             "names those it takes, `kiln keys new NAME` makes one",
                             endpoint, key_name),
                 0};
  }
  if (trouble == Trouble::kMechanism && key_name.empty()) {
    return Error{Code::kPermissionDenied,
                 fmt::format("the coordinator at {} takes only those who have a key: --key FILE or "
                             "KILN_KEY names yours; `kiln keys new NAME` on its machine makes one",
                             endpoint),
                 0};
  }
  if (trouble == Trouble::kMechanism) {
    return Error{
        Code::kPermissionDenied,
        fmt::format(
            "the coordinator at {} runs without keys: start it with --keys DATA_DIR/keys, or "
            "leave --key and KILN_KEY away",
            endpoint),
        0};
  }
  return std::nullopt;
}

Error Connection::Impl::unanswered(int timeout_ms) const {
  std::string message =
      fmt::format("no coordinator answers at {} within {} ms", endpoint, timeout_ms);
  if (trouble == Trouble::kEnded && !key_name.empty()) {
    message +=
        "; something there ends the handshake: if it is the coordinator, its key is not the "
        "`server` of your key file";
  }
  return {Code::kUnavailable, std::move(message), 0};
}

std::optional<Result<Message>> Connection::Impl::take() {
  for (;;) {
    zmq::message_t frame;
    if (!receive_frame(dealer, frame)) return std::nullopt;
    const bool multipart = discard_rest(dealer, frame);
    if (frame.empty() && !multipart) continue;  // a probe
    if (!multipart) {
      auto message = parts.add({frame.data<char>(), frame.size()});
      if (message && *message) return **std::move(message);
      if (message) continue;
    }
    gone = true;
    return fail(Code::kUnavailable,
                fmt::format("the coordinator at {} sent a malformed message", endpoint));
  }
}

Connection::Connection(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Connection::~Connection() = default;

Result<std::unique_ptr<Connection>> Connection::open_one(const std::string& endpoint, Role role,
                                                         int timeout_ms, bool gives_up,
                                                         const ConnectOptions& options) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  TRY(const Endpoint parsed, parse_endpoint(endpoint));
  if (!parsed.loopback && !options.key) {
    return fail(Code::kPermissionDenied,
                fmt::format("{} is beyond this machine, where a coordinator takes only those who "
                            "have a key: --key FILE or KILN_KEY names yours; `kiln keys new NAME` "
                            "on the coordinator's machine makes one",
                            endpoint));
  }
  auto impl = std::make_unique<Impl>();
  impl->endpoint = endpoint;
  TRY_STATUS(impl->set_up(parsed, options));
  const std::string hello =
      encode(Hello{kProtocolVersion, role, "kiln 0.1.0", options.token, options.templates});
  bool said = false;
  for (;;) {
    if (auto error = impl->hopeless()) return fail(*std::move(error));
    if (impl->gone) impl->parts = {};
    if (impl->gone) impl->gone = said = false;  // the answer is lost: say it again
    if (impl->connected && !said) said = impl->say(hello);
    if (auto answer = impl->take(); answer && said) {
      TRY(const Message message, *std::move(answer));
      if (const auto* refusal = std::get_if<Refusal>(&message)) return fail(refusal->error);
      const auto* welcome = std::get_if<Welcome>(&message);
      if (welcome == nullptr || welcome->protocol != kProtocolVersion) {
        return fail(Code::kInvalidArgument, fmt::format("{} does not speak protocol {} of Kiln",
                                                        endpoint, kProtocolVersion));
      }
      impl->welcome = *welcome;
      return std::unique_ptr<Connection>(new Connection(std::move(impl)));
    }
    const int wait_ms = ms_until(deadline);
    const bool is_refused = gives_up && impl->refused && !impl->connected;
    if (wait_ms == 0 || is_refused) return fail(impl->unanswered(timeout_ms));
    impl->poll(said || !impl->connected ? ZMQ_POLLIN : ZMQ_POLLIN | ZMQ_POLLOUT, wait_ms);
  }
}

const Welcome& Connection::welcome() const {
  return impl_->welcome;
}
const std::string& Connection::endpoint() const {
  return impl_->endpoint;
}
void Connection::wake() {
  impl_->wake.signal();
}

Status Connection::send(const Message& message, int timeout_ms) {
  Impl& impl = *impl_;
  std::string frame = encode(message);
  if (frame.size() > kMaxMessageBytes) {
    return fail(Code::kInvalidArgument, fmt::format("a message of {} bytes is larger than {}",
                                                    frame.size(), kMaxMessageBytes));
  }
  const std::vector<std::string> frames =
      frame.size() <= kMaxFrameBytes ? std::vector{std::move(frame)} : parts_of(frame);
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  bool woken = false;
  for (size_t next = 0; next < frames.size();) {
    impl.watch_connection();  // it may have ended while nobody looked
    if (impl.gone) return fail(impl.unavailable());
    const Sent sent = send_frame(impl.dealer, frames[next]);
    if (sent == Sent::kYes) {
      ++next;
      continue;
    }
    const int wait_ms = ms_until(deadline);
    if (sent == Sent::kGone || wait_ms == 0) return fail(impl.unavailable());
    impl.poll(ZMQ_POLLOUT, wait_ms);
    woken = impl.wake.take() || woken;
  }
  if (woken) impl.wake.signal();  // meant for receive()
  return {};
}

Result<Message> Connection::receive(int timeout_ms) {
  Impl& impl = *impl_;
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    if (auto message = impl.take()) {
      // libzmq reconnects by itself, and the new coordinator refuses a peer that has not said Hello
      // to it. The end of the old connection is reported before that refusal.
      impl.watch_connection();
      const bool refused = *message && std::holds_alternative<Refusal>(**message);
      if (refused && impl.gone) return fail(impl.unavailable());
      return *std::move(message);
    }
    if (impl.gone) return fail(impl.unavailable());
    const int wait_ms = ms_until(deadline);
    if (impl.wake.take() || wait_ms == 0) {
      return fail(Code::kDeadlineExceeded, "no message from the coordinator in time");
    }
    impl.poll(ZMQ_POLLIN, wait_ms);
  }
}

}  // namespace kiln
