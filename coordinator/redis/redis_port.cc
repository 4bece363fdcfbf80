// One thread polls every connection:
//
//   reading ──a request is whole, answered at once──> reading
//      └─────GET, SET─────> waiting ──the service's answer──> reading
//
// A connection that says what is no request, or does not read its answers, is closed; its next request
// waits until they are sent. Where there is no place left, others are closed too (RedisLimits).
#include "coordinator/redis/redis_port.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "compiler_core/base/text.h"
#include "coordinator/redis/resp.h"
#include "schema/messages.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostSignedIn = kMaxArtifactBytes + 4096, kMostBefore = 4096;
constexpr size_t kRead = 1 << 20;          // of one connection in a turn
constexpr size_t kUnsent = 64 << 10;       // of answers, before further requests wait
constexpr std::chrono::seconds kLate{10};  // for a password, where one is asked for
constexpr int64_t kPollMs = 1000;

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  bool loopback = false;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Result<Address> parse_address(const std::string& text) {
  const auto bad = fail(Code::kInvalidArgument,
                        fmt::format("'{}' is not an address for Redis clients; write "
                                    "127.0.0.1:6379 or [::1]:6379 (port 0 picks a free one)",
                                    text));
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return bad;
  uint16_t port = 0;
  if (!read_number(text.substr(colon + 1), port)) return bad;
  std::string host = text.substr(0, colon);
  if (host == "localhost") host = "127.0.0.1";
  Address address;
  auto* four = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* six = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (inet_pton(AF_INET, host.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
    address.size = sizeof *four;
    address.loopback = ntohl(four->sin_addr.s_addr) >> 24 == 127;
    return address;
  }
  if (host.size() < 3 || host.front() != '[' || host.back() != ']' ||
      inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &six->sin6_addr) != 1)
    return bad;
  six->sin6_family = AF_INET6;
  six->sin6_port = htons(port);
  address.size = sizeof *six;
  address.loopback = IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
  return address;
}

std::string endpoint_of(int fd) {
  Address bound;
  bound.size = sizeof bound.storage;
  getsockname(fd, bound.get(), &bound.size);
  std::array<char, INET6_ADDRSTRLEN> host{};
  if (bound.storage.ss_family == AF_INET) {
    const auto* four = reinterpret_cast<const sockaddr_in*>(&bound.storage);
    inet_ntop(AF_INET, &four->sin_addr, host.data(), host.size());
    return fmt::format("redis://{}:{}", host.data(), ntohs(four->sin_port));
  }
  const auto* six = reinterpret_cast<const sockaddr_in6*>(&bound.storage);
  inet_ntop(AF_INET6, &six->sin6_addr, host.data(), host.size());
  return fmt::format("redis://[{}]:{}", host.data(), ntohs(six->sin6_port));
}

struct Peer {
  Peer(int socket, uint64_t id) : fd(socket), number(id) {}
  Peer(const Peer&) = delete;
  ~Peer() { close(fd); }

  const int fd;
  const uint64_t number;
  const Clock::time_point since = Clock::now();
  Clock::time_point heard = since;
  Clock::time_point progressed =
      since;  // a request was begun or whole, or its answer there or sent
  RespReader reader;
  RespVersion version = RespVersion::k2;
  std::optional<User> user{};
  std::string password;  // the user's
  bool waiting = false;  // for the service
  bool ending = false;   // once its answers are sent
  bool gone = false;
  std::string out;
  size_t sent = 0;

  bool has_out() const { return sent < out.size(); }
  size_t held_bytes() const { return reader.held() + out.size(); }
  bool is_busy() const { return !waiting && held_bytes() > 0; }
  size_t most_bytes() const { return user ? kMostSignedIn : kMostBefore; }
  short wanted() const {
    if (has_out()) return POLLOUT;
    return waiting || ending ? 0 : POLLIN;
  }
};

// Answers that other threads bring to the port's. Outlives the port in those that are still out.
struct Mailbox {
  struct Answer {
    uint64_t peer = 0;
    std::string bytes;
    bool is_nothing = false;  // as the peer's version has it
  };
  Mailbox() : wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~Mailbox() { close(wake); }
  void ring() const {
    const uint64_t one = 1;
    (void)!write(wake, &one, sizeof one);
  }
  void put(Answer answer) {
    const std::lock_guard lock(mutex);
    answers.push_back(std::move(answer));
    ring();
  }

  const int wake;
  std::mutex mutex;
  std::vector<Answer> answers;  // guarded by mutex
};

std::string upper(std::string_view word) {
  std::string text(word);
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

}  // namespace

struct RedisPort::Impl {
  void run();
  void accept_all();
  void make_room();
  void bound_memory();
  void read(Peer& peer);
  void answer_requests(Peer& peer);
  void answer(Peer& peer, std::vector<std::string> request);
  std::string hello(Peer& peer, const std::vector<std::string>& request);
  std::string sign_in(Peer& peer, std::string_view password);
  bool is_still_signed_in(Peer& peer) const;
  void ask(Peer& peer, std::vector<std::string> request);
  void deliver();
  static void send(Peer& peer);

  RedisService service;
  RedisLimits limits;
  std::string endpoint;
  int listening = -1;
  std::list<Peer> peers;  // the thread's own
  uint64_t next_number = 1;
  const std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  std::atomic<bool> stopping{false};
  std::thread thread;
};

void RedisPort::Impl::run() {
  std::vector<pollfd> fds;
  while (!stopping) {
    fds.assign({{mailbox->wake, POLLIN, 0}, {listening, POLLIN, 0}});
    for (const Peer& peer : peers) fds.push_back({peer.fd, peer.wanted(), 0});
    const int64_t patience = std::clamp(limits.request_ms / 4, int64_t{1}, kPollMs);
    poll(fds.data(), fds.size(), static_cast<int>(patience));
    if (fds[0].revents != 0) {
      uint64_t rings = 0;
      (void)!::read(mailbox->wake, &rings, sizeof rings);
    }
    const auto now = Clock::now();
    const std::chrono::milliseconds most(limits.request_ms);
    size_t next = 2;
    for (Peer& peer : peers) {
      const pollfd& polled = fds[next++];
      if ((polled.revents & POLLOUT) != 0) answer_requests(peer);
      if ((polled.revents & POLLIN) != 0) read(peer);
      if ((polled.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) peer.gone = true;
      if (!peer.user && now - peer.since > kLate) peer.gone = true;
      if (peer.is_busy() && now - peer.progressed > most) peer.gone = true;
      if (peer.ending && !peer.has_out()) peer.gone = true;
    }
    deliver();
    bound_memory();
    peers.remove_if([](const Peer& peer) { return peer.gone; });
    if (fds[1].revents != 0) accept_all();
  }
}

void RedisPort::Impl::accept_all() {
  constexpr int kATurn = 64;
  for (int accepted = 0; accepted < kATurn; ++accepted) {
    const int fd = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // no descriptors: not at once
    if (fd < 0) return;
    if (peers.size() >= limits.connections) make_room();
    Peer& peer = peers.emplace_back(fd, next_number++);
    if (!service.sign_in) peer.user = User{};
  }
}

void RedisPort::Impl::make_room() {
  std::map<std::string, size_t> counts;
  for (const Peer& peer : peers)
    if (peer.user) ++counts[peer.user->name];
  // Whoever is not signed in goes first, then the users with the most connections.
  const auto worth = [&](const Peer& peer) {
    const size_t shared = peer.user ? counts[peer.user->name] : std::numeric_limits<size_t>::max();
    return std::tuple(std::numeric_limits<size_t>::max() - shared, peer.waiting, peer.heard);
  };
  peers.erase(std::ranges::min_element(peers, {}, worth));
}

void RedisPort::Impl::bound_memory() {
  size_t held = 0;
  for (const Peer& peer : peers) held += peer.gone ? 0 : peer.held_bytes();
  while (held > limits.held_bytes) {
    const auto least = std::ranges::min_element(peers, {}, [](const Peer& peer) {
      return std::tuple(peer.gone || peer.held_bytes() < kUnsent, peer.progressed);
    });
    held -= std::min(held, least->held_bytes());
    if (std::exchange(least->gone, true)) return;
  }
}

void RedisPort::Impl::read(Peer& peer) {
  std::array<char, 1 << 16> chunk;
  for (size_t taken = 0; taken < kRead && (peer.wanted() & POLLIN) != 0; taken += chunk.size()) {
    const ssize_t n = recv(peer.fd, chunk.data(), chunk.size(), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
      peer.gone = true;
      return;
    }
    peer.heard = Clock::now();
    if (peer.reader.held() == 0) peer.progressed = peer.heard;
    peer.reader.add({chunk.data(), static_cast<size_t>(n)});
    answer_requests(peer);
  }
}

// Also goes on with those that waited for the answers before them to be sent.
void RedisPort::Impl::answer_requests(Peer& peer) {
  send(peer);
  while (!peer.waiting && !peer.ending && !peer.gone && peer.out.size() - peer.sent <= kUnsent) {
    auto request = peer.reader.next(peer.most_bytes());
    if (!request) {
      peer.out += resp_error(request.error().message);
      peer.ending = true;
    } else if (!*request) {
      break;
    } else {
      peer.progressed = Clock::now();
      answer(peer, **std::move(request));
    }
  }
  send(peer);
}

void RedisPort::Impl::answer(Peer& peer, std::vector<std::string> request) {
  const std::string command = upper(request.front());
  if (command == "HELLO") {
    peer.out += hello(peer, request);
  } else if (command == "AUTH" && (request.size() == 2 || request.size() == 3)) {
    const std::string problem = sign_in(peer, request.back());
    peer.out += problem.empty() ? resp_ok() : problem;
  } else if (command == "QUIT") {
    peer.out += resp_ok();
    peer.ending = true;
  } else if (!peer.user) {
    peer.out += "-NOAUTH Authentication required.\r\n";
  } else if (command == "PING") {
    peer.out += resp_simple("PONG");
  } else if (command == "SELECT") {
    peer.out += resp_ok();
  } else if ((command == "GET" && request.size() == 2) ||
             (command == "SET" && request.size() == 3)) {
    if (is_still_signed_in(peer)) return ask(peer, std::move(request));
    peer.out += "-NOAUTH the password has ended\r\n";
    peer.ending = true;
  } else {
    peer.out += resp_error(
        "unknown command or arguments: this is Kiln's cache for Inductor, which "
        "has HELLO, AUTH, PING, SELECT, GET, SET and QUIT");
  }
}

// HELLO [version [AUTH user password] [SETNAME name]]
std::string RedisPort::Impl::hello(Peer& peer, const std::vector<std::string>& request) {
  RespVersion version = peer.version;
  if (request.size() > 1) {
    if (request[1] != "2" && request[1] != "3") return "-NOPROTO unsupported protocol version\r\n";
    version = request[1] == "3" ? RespVersion::k3 : RespVersion::k2;
  }
  for (size_t i = 2; i < request.size();) {
    const std::string option = upper(request[i]);
    if (option == "AUTH" && i + 2 < request.size()) {
      if (std::string problem = sign_in(peer, request[i + 2]); !problem.empty()) return problem;
      i += 3;
    } else if (option == "SETNAME" && i + 1 < request.size()) {
      i += 2;
    } else {
      return resp_error("syntax error in HELLO");
    }
  }
  if (!peer.user) return "-NOAUTH HELLO must be called with AUTH.\r\n";
  peer.version = version;
  return resp_hello(version);
}

// Empty when the peer is signed in, else the answer.
std::string RedisPort::Impl::sign_in(Peer& peer, std::string_view password) {
  if (!service.sign_in) return {};
  auto user = service.sign_in(password);
  if (!user) return fmt::format("-WRONGPASS {}\r\n", user.error().message);
  peer.user = *std::move(user);
  peer.password = password;
  return {};
}

bool RedisPort::Impl::is_still_signed_in(Peer& peer) const {
  if (!service.sign_in) return true;
  auto user = service.sign_in(peer.password);
  if (!user) return false;
  peer.user = *std::move(user);
  return true;
}

void RedisPort::Impl::ask(Peer& peer, std::vector<std::string> request) {
  peer.waiting = true;
  if (request.size() == 2) {
    service.get(*peer.user, std::move(request[1]),
                [box = mailbox, number = peer.number](const std::optional<std::string>& found) {
                  box->put({number, found ? resp_bytes(*found) : "", !found});
                });
    return;
  }
  service.set(*peer.user, std::move(request[1]), std::move(request[2]),
              [box = mailbox, number = peer.number] {
                box->put({number, resp_ok()});
              });
}

void RedisPort::Impl::deliver() {
  std::vector<Mailbox::Answer> answers;
  {
    const std::lock_guard lock(mailbox->mutex);
    answers.swap(mailbox->answers);
  }
  for (Mailbox::Answer& answer : answers) {
    const auto peer = std::ranges::find(peers, answer.peer, &Peer::number);
    if (peer == peers.end()) continue;
    peer->waiting = false;
    peer->progressed = Clock::now();
    peer->out += answer.is_nothing ? resp_nothing(peer->version) : answer.bytes;
    answer_requests(*peer);  // what came behind it, too
  }
}

void RedisPort::Impl::send(Peer& peer) {
  while (peer.has_out()) {
    const ssize_t n =
        ::send(peer.fd, peer.out.data() + peer.sent, peer.out.size() - peer.sent, MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0) {
      peer.gone = true;
      return;
    }
    peer.sent += static_cast<size_t>(n);
  }
  if (peer.sent > 0) peer.progressed = Clock::now();
  if (peer.out.capacity() > kUnsent) std::string().swap(peer.out);  // its memory too
  peer.out.clear();
  peer.sent = 0;
}

RedisPort::RedisPort(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

RedisPort::~RedisPort() {
  impl_->stopping = true;
  impl_->mailbox->ring();
  impl_->thread.join();
  close(impl_->listening);
}

const std::string& RedisPort::endpoint() const {
  return impl_->endpoint;
}

Result<std::unique_ptr<RedisPort>> RedisPort::open(const std::string& address, RedisService service,
                                                   RedisLimits limits) {
  TRY(Address parsed, parse_address(address));
  if (!parsed.loopback && !service.sign_in)
    return fail(Code::kInvalidArgument,
                address +
                    " can be reached from other machines, and this coordinator takes no keys "
                    "that could be asked for: listen on 127.0.0.1, or give it keys (--keys)");
  const int fd = socket(parsed.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return fail(Code::kUnavailable, "no socket for Redis clients: out of descriptors?");
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  constexpr int kBacklog = 128;
  if (bind(fd, parsed.get(), parsed.size) != 0 || listen(fd, kBacklog) != 0) {
    const int error = errno;
    close(fd);
    return fail(
        error == EADDRINUSE ? Code::kUnavailable : Code::kInvalidArgument,
        fmt::format("cannot listen for Redis clients on {}: {}", address, std::strerror(error)));
  }
  auto impl = std::make_unique<Impl>();
  impl->service = std::move(service);
  impl->limits = limits;
  impl->endpoint = endpoint_of(fd);
  impl->listening = fd;
  impl->thread = std::thread([port = impl.get()] { port->run(); });
  return std::unique_ptr<RedisPort>(new RedisPort(std::move(impl)));
}

}  // namespace kiln
