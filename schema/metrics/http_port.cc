// One thread polls every connection:
//
//   reading ──request is whole──> waiting ──the handler's answer──> answering ──all sent──> closing
//      │                                                              ↑    └─a stream─> streaming
//      └──────────too long, too late or no request────────────────────┘
//
// closing ends as gone, and so does any other state: no place left (the newest takes it), or too old.
// A connection is closed only once its peer has seen the answer (it closes its end) or a second has
// passed: closing a socket with unread bytes would take the answer back.
#include "schema/metrics/http_port.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
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
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kBacklog = 128;
constexpr milliseconds kClosingTime{1'000};  // for the peer to take the answer
constexpr milliseconds kPoll{1'000};

struct Address {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Result<Address> parse_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  const auto bad = [&] {
    return fail(Code::kInvalidArgument,
                fmt::format("'{}' is not an address for HTTP; write 127.0.0.1:9557, or [::1]:9557 "
                            "(port 0 picks a free one)",
                            text));
  };
  if (colon == std::string::npos) return bad();
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host == "localhost") {
    host = "127.0.0.1";
  }
  const std::string port = text.substr(colon + 1);
  if (host.empty() || port.empty() || port.size() > 5 ||
      port.find_first_not_of("0123456789") != std::string::npos || std::stoi(port) > 65535) {
    return bad();
  }
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return bad();
  Address address;
  address.size = found->ai_addrlen;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return address;
}

Result<int> listen_on(const Address& address, const std::string& text) {
  const int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return fail(Code::kUnavailable, "no socket for HTTP: out of descriptors?");
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  // The kernel keeps those that say nothing, for a second; the others come with their request.
  setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &yes, sizeof yes);
  if (bind(fd, address.get(), address.size) != 0 || listen(fd, kBacklog) != 0) {
    const int error = errno;
    close(fd);
    return fail(error == EADDRINUSE ? Code::kUnavailable : Code::kInvalidArgument,
                fmt::format("cannot listen for HTTP on {}: {}", text, std::strerror(error)));
  }
  return fd;
}

struct HostAndPort {
  std::string host, port;
};
HostAndPort words_of(const Address& address) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  getnameinfo(address.get(), address.size, host.data(), host.size(), port.data(), port.size(),
              NI_NUMERICHOST | NI_NUMERICSERV);
  return {host.data(), port.data()};
}

std::string endpoint_of(int fd) {
  Address bound;
  getsockname(fd, bound.get(), &bound.size);
  const auto [host, port] = words_of(bound);
  const bool bare = bound.storage.ss_family != AF_INET6;
  return fmt::format("http://{}{}{}:{}", bare ? "" : "[", host, bare ? "" : "]", port);
}

struct Peer {
  Peer(int socket, uint64_t id, std::string from)
      : fd(socket), number(id), address(std::move(from)) {}
  Peer(const Peer&) = delete;
  ~Peer() { close(fd); }

  enum class State : uint8_t { kReading, kWaiting, kAnswering, kStreaming, kClosing, kGone };
  const int fd;
  const uint64_t number;
  const std::string address;
  const Clock::time_point since = Clock::now();
  State state = State::kReading;
  Clock::time_point closing_since{};
  std::string request, answer;
  size_t sent = 0;
  bool body_wanted = true;
  bool is_stream = false;

  // The events that poll() should wait for.
  short wanted() const {
    if (sent < answer.size()) return POLLOUT;
    return state == State::kWaiting ? 0 : POLLIN;
  }
};

// Work that other threads bring to the port's. Outlives the port in the replies that are still out.
struct Mailbox {
  Mailbox() : wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~Mailbox() { close(wake); }
  void ring() const {
    const uint64_t one = 1;
    (void)!write(wake, &one, sizeof one);
  }
  void put(uint64_t peer, HttpAnswer answer) {
    const std::lock_guard lock(mutex);
    answers.emplace_back(peer, std::move(answer));
    ring();
  }

  const int wake;
  std::mutex mutex;
  // Guarded by mutex.
  std::vector<std::pair<uint64_t, HttpAnswer>> answers;
  std::string event;
};

}  // namespace

struct HttpPort::Impl {
  void run();
  void accept_all();
  void make_room(const std::string& address);
  void read(Peer& peer);
  void answer(Peer& peer, const HttpAnswer& answer, bool body_wanted = true);
  void answer_if_whole(Peer& peer);
  void answer_request(Peer& peer, HttpRequest request);
  void deliver();
  static void send(Peer& peer);
  void look_at_the_time(Peer& peer, Clock::time_point now);
  size_t count_streams() const {
    return static_cast<size_t>(std::ranges::count_if(peers, &Peer::is_stream));
  }

  HttpLimits limits;
  Handler handler;
  std::string endpoint;
  int listening = -1;
  std::list<Peer> peers;  // the thread's own; the oldest first
  uint64_t next_number = 1;
  const std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  std::atomic<size_t> streams{0};
  std::atomic<bool> stopping{false};
  std::thread thread;
};

void HttpPort::Impl::run() {
  std::vector<pollfd> fds;
  while (!stopping) {
    fds.assign({{mailbox->wake, POLLIN, 0}, {listening, POLLIN, 0}});
    for (const Peer& peer : peers) fds.push_back({peer.fd, peer.wanted(), 0});
    const auto patience = std::min(kPoll, milliseconds(std::min(limits.head_ms, limits.age_ms)));
    poll(fds.data(), fds.size(), static_cast<int>(std::max<int64_t>(1, patience.count() / 4)));
    if (fds[0].revents != 0) {
      uint64_t rings = 0;
      (void)!::read(mailbox->wake, &rings, sizeof rings);
      deliver();
    }
    const auto now = Clock::now();
    size_t next = 2;
    for (Peer& peer : peers) {
      const pollfd& polled = fds[next++];
      if (polled.revents != 0) polled.events == POLLOUT ? send(peer) : read(peer);
      look_at_the_time(peer, now);
    }
    std::erase_if(peers, [](const Peer& peer) { return peer.state == Peer::State::kGone; });
    streams = count_streams();
    // After those that were there: whose request is whole has had its answer.
    if (fds[1].revents != 0) accept_all();
  }
}

// Gives each answer that other threads brought to its peer, and the event to the streams.
void HttpPort::Impl::deliver() {
  std::vector<std::pair<uint64_t, HttpAnswer>> answers;
  std::string event;
  {
    const std::lock_guard lock(mailbox->mutex);
    answers.swap(mailbox->answers);
    event.swap(mailbox->event);
  }
  for (const auto& [number, said] : answers) {
    const auto peer = std::ranges::find(peers, number, &Peer::number);
    if (peer != peers.end() && peer->state == Peer::State::kWaiting)
      answer(*peer, said, peer->body_wanted);
  }
  if (event.empty()) return;
  for (Peer& peer : peers) {
    if (peer.state != Peer::State::kStreaming || peer.sent < peer.answer.size()) continue;
    peer.answer = event;
    peer.sent = 0;
    send(peer);
  }
}

void HttpPort::Impl::accept_all() {
  for (int accepted = 0; accepted < kBacklog; ++accepted) {
    Address from;
    const int fd = accept4(listening, from.get(), &from.size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
      std::this_thread::sleep_for(milliseconds(10));  // no descriptors: try again soon, not at once
    if (fd < 0) return;
    const std::string address = words_of(from).host;
    make_room(address);
    read(peers.emplace_back(fd, next_number++, address));
  }
}

// Ends the oldest connection of `address` if it has as many as it may, and the oldest of whoever
// has most if all have.
void HttpPort::Impl::make_room(const std::string& address) {
  std::map<std::string, size_t> counts;
  for (const Peer& peer : peers) ++counts[peer.address];
  std::string from;
  if (counts[address] >= limits.connections_of_one)
    from = address;
  else if (peers.size() >= limits.connections)
    from =
        std::ranges::max_element(counts, {}, [](const auto& each) { return each.second; })->first;
  else
    return;
  const auto oldest = std::ranges::find(peers, from, &Peer::address);
  if (oldest != peers.end()) peers.erase(oldest);
}

void HttpPort::Impl::read(Peer& peer) {
  std::array<char, 4096> chunk;
  // As much as a request may have, so that nobody keeps the thread.
  for (size_t taken = 0; taken <= limits.head_bytes + limits.body_bytes; taken += chunk.size()) {
    const ssize_t n = recv(peer.fd, chunk.data(), chunk.size(), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
      peer.state = Peer::State::kGone;
      return;
    }
    if (peer.state != Peer::State::kReading) continue;  // the answer is on its way: discarded
    peer.request.append(chunk.data(), static_cast<size_t>(n));
    answer_if_whole(peer);
  }
}

void HttpPort::Impl::answer_if_whole(Peer& peer) {
  const auto head = head_size(peer.request);
  if (!head && peer.request.size() <= limits.head_bytes) return;
  if (!head || *head > limits.head_bytes)
    return answer(peer, plain_answer(431, "the request is too long"));
  auto request = parse_request(std::string_view(peer.request).substr(0, *head));
  if (!request) return answer(peer, plain_answer(400, request.error().message));
  if (!request->is_get() && request->method != "POST") {
    HttpAnswer refused = plain_answer(405, "GET, HEAD and POST are all that is answered here");
    refused.headers = {{"Allow", "GET, HEAD, POST"}};
    return answer(peer, refused);
  }
  const auto body = body_size(*request);
  if (!body) return answer(peer, plain_answer(400, body.error().message));
  if (*body > limits.body_bytes) return answer(peer, plain_answer(413, "the body is too long"));
  if (peer.request.size() < *head + *body) return;
  request->body = peer.request.substr(*head, *body);
  answer_request(peer, *std::move(request));
}

void HttpPort::Impl::answer_request(Peer& peer, HttpRequest request) {
  request.peer = peer.address;
  peer.state = Peer::State::kWaiting;
  peer.body_wanted = request.method != "HEAD";
  peer.request.clear();
  handler(std::move(request), [box = mailbox, number = peer.number](HttpAnswer said) {
    box->put(number, std::move(said));
  });
  deliver();  // what was answered at once
}

void HttpPort::Impl::answer(Peer& peer, const HttpAnswer& answer, bool body_wanted) {
  if (answer.stream && count_streams() >= limits.streams) {
    HttpAnswer full = plain_answer(503, "as many watch already as may; this page works without");
    full.headers = {{"Retry-After", "60"}};
    return this->answer(peer, full, body_wanted);
  }
  peer.answer = format_answer(answer, body_wanted);
  peer.is_stream = answer.stream && body_wanted;
  peer.state = Peer::State::kAnswering;
  peer.request.clear();
  send(peer);
}

void HttpPort::Impl::send(Peer& peer) {
  while (peer.sent < peer.answer.size()) {
    const ssize_t n = ::send(peer.fd, peer.answer.data() + peer.sent,
                             peer.answer.size() - peer.sent, MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0) {
      peer.state = Peer::State::kGone;
      return;
    }
    peer.sent += static_cast<size_t>(n);
  }
  if (peer.is_stream) {
    peer.state = Peer::State::kStreaming;
    return;
  }
  shutdown(peer.fd, SHUT_WR);
  peer.state = Peer::State::kClosing;
  peer.closing_since = Clock::now();
}

void HttpPort::Impl::look_at_the_time(Peer& peer, Clock::time_point now) {
  if (peer.state == Peer::State::kReading && now - peer.since > milliseconds(limits.head_ms))
    answer(peer, plain_answer(408, "the request did not come in time"));
  const bool closed =
      peer.state == Peer::State::kClosing && now - peer.closing_since > kClosingTime;
  const int64_t age_ms = peer.is_stream ? limits.stream_age_ms : limits.age_ms;
  if (closed || now - peer.since > milliseconds(age_ms)) peer.state = Peer::State::kGone;
}

HttpPort::HttpPort(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpPort::~HttpPort() {
  impl_->stopping = true;
  impl_->mailbox->ring();
  impl_->thread.join();
  close(impl_->listening);
}

const std::string& HttpPort::endpoint() const {
  return impl_->endpoint;
}

size_t HttpPort::streams() const {
  return impl_->streams;
}

void HttpPort::publish(std::string text) {
  const std::lock_guard lock(impl_->mailbox->mutex);
  impl_->mailbox->event = std::move(text);
  impl_->mailbox->ring();
}

Result<std::unique_ptr<HttpPort>> HttpPort::open(const std::string& address, Pages pages,
                                                 HttpLimits limits) {
  return serve(
      address,
      [pages = std::move(pages)](const HttpRequest& request, const Reply& reply) {
        if (request.is_get()) return reply(pages(request.path));
        HttpAnswer refused = plain_answer(405, "GET is all that is answered here");
        refused.headers = {{"Allow", "GET, HEAD"}};
        reply(std::move(refused));
      },
      limits);
}

Result<std::unique_ptr<HttpPort>> HttpPort::serve(const std::string& address, Handler handler,
                                                  HttpLimits limits) {
  TRY(const Address parsed, parse_address(address));
  TRY(const int fd, listen_on(parsed, address));
  auto impl = std::make_unique<Impl>();
  impl->handler = std::move(handler);
  impl->limits = limits;
  impl->endpoint = endpoint_of(fd);
  impl->listening = fd;
  impl->thread = std::thread([port = impl.get()] { port->run(); });
  return std::unique_ptr<HttpPort>(new HttpPort(std::move(impl)));
}

}  // namespace kiln
