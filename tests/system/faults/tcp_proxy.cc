#include "tests/system/faults/tcp_proxy.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>
#include <vector>

#include "compiler_core/base/check.h"
#include "tests/support/loopback.h"

namespace kiln::testing {
namespace {

constexpr size_t kMaxWaiting = 256 << 10;
constexpr int64_t kDelayMs = 50, kHalfMs = 5;
constexpr int kBytesATurn = 256;

int64_t now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

void send_at_once(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool is_open(TcpProxy::Mode mode, bool up) {
  return mode != (up ? TcpProxy::Mode::kDeafToServer : TcpProxy::Mode::kDeafToClient);
}

}  // namespace

std::string_view TcpProxy::name(Mode mode) {
  constexpr std::string_view kNames[kModes] = {
      "forward", "refuse", "bytes", "halves", "delay", "deaf to client", "deaf to server"};
  return kNames[static_cast<int>(mode)];
}

TcpProxy::TcpProxy(int server_port, Tap tap) : server_port_(server_port), tap_(std::move(tap)) {
  wake_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  listen();
  thread_ = std::thread([this] { run(); });
}

// Its first port is its port for good.
void TcpProxy::listen() {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const sockaddr_in address = loopback(port_);
  CHECK(::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
            ::listen(listener_, 512) == 0,
        "a port");
  sockaddr_in bound{};
  socklen_t size = sizeof bound;
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&bound), &size);
  port_ = ntohs(bound.sin_port);
}

TcpProxy::~TcpProxy() {
  stop_ = true;
  ::eventfd_write(wake_, 1);
  thread_.join();
  if (listener_ >= 0) ::close(listener_);
  ::close(wake_);
}

void TcpProxy::set(Mode mode) {
  mode_ = mode;
  ::eventfd_write(wake_, 1);
}

void TcpProxy::drop() {
  drop_ = true;
  ::eventfd_write(wake_, 1);
}

void TcpProxy::set_absent(bool absent) {
  absent_ = absent;
  ::eventfd_write(wake_, 1);
}

// With a reset instead of an end, as of a machine that has gone.
void TcpProxy::reset(Pair& pair) {
  const linger now{1, 0};
  for (const int fd : {pair.up.from, pair.up.to}) {
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    ::close(fd);
  }
}

void TcpProxy::accept_one() {
  const int client = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (client < 0) return;
  // Blocking: on one machine it is answered at once.
  const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool reached = connect_to_loopback(server, server_port_) == 0;
  ::fcntl(server, F_SETFL, O_NONBLOCK);
  send_at_once(client);
  send_at_once(server);
  Pair& pair = pairs_.emplace_back();
  pair.up.connection = pair.down.connection = ++connections_;
  pair.up.is_up = true;
  pair.up.from = pair.down.to = client;
  pair.up.to = pair.down.from = server;
  pair.over = !reached || mode_ == Mode::kRefuse;
}

void TcpProxy::fill(Flow& flow, Mode mode) {
  char chunk[1 << 14];
  const ssize_t n = ::recv(flow.from, chunk, sizeof chunk, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    flow.ended = true;
    return;
  }
  const auto size = static_cast<size_t>(n);
  if (tap_ && !tap_(flow.connection, flow.is_up, {chunk, size})) {
    flow.cut = true;
    return;
  }
  flow.waiting += size;
  const int64_t due = now_ms() + (mode == Mode::kDelay ? kDelayMs : 0);
  const size_t half = mode == Mode::kHalves ? size / 2 : size;
  flow.pieces.push_back({due, std::string(chunk, half)});
  if (half < size) flow.pieces.push_back({due + kHalfMs, std::string(chunk + half, size - half)});
}

bool TcpProxy::drain(Flow& flow, Mode mode) {
  for (int turn = 0; !flow.pieces.empty() && turn < kBytesATurn; ++turn) {
    Piece& piece = flow.pieces.front();
    if (piece.due_ms > now_ms()) return true;
    const size_t size =
        mode == Mode::kBytes ? std::min<size_t>(1, piece.bytes.size()) : piece.bytes.size();
    const ssize_t n = ::send(flow.to, piece.bytes.data(), size, MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    piece.bytes.erase(0, static_cast<size_t>(n));
    flow.waiting -= static_cast<size_t>(n);
    if (piece.bytes.empty()) flow.pieces.pop_front();
  }
  return true;
}

void TcpProxy::run() {
  while (!stop_) {
    const Mode mode = mode_;
    const bool absent = absent_;
    if (absent && listener_ >= 0) ::close(std::exchange(listener_, -1));
    if (!absent && listener_ < 0) listen();
    const bool drops = drop_.exchange(false) || mode == Mode::kRefuse || absent;
    std::vector<pollfd> waits = {{listener_, POLLIN, 0}, {wake_, POLLIN, 0}};
    std::vector<Flow*> flows;
    bool pending = false;
    for (Pair& pair : pairs_) {
      pair.over = pair.over || drops;
      for (Flow* flow : {&pair.up, &pair.down}) {
        if (pair.over) break;
        const bool open = is_open(mode, flow == &pair.up);
        if (flow->cut || (open && !drain(*flow, mode))) pair.over = true;
        if (flow->ended && flow->pieces.empty()) pair.over = true;
        pending = pending || (open && !flow->pieces.empty());
        if (!open || flow->ended || flow->waiting > kMaxWaiting) continue;
        waits.push_back({flow->from, POLLIN, 0});
        flows.push_back(flow);
      }
    }
    bool any_over = false;
    for (auto pair = pairs_.begin(); pair != pairs_.end();) {
      if (!pair->over) {
        ++pair;
        continue;
      }
      reset(*pair);
      pair = pairs_.erase(pair);
      any_over = true;
    }
    if (any_over) continue;  // some of `waits` are closed
    ::poll(waits.data(), waits.size(), pending ? 1 : 100);
    eventfd_t ignored;
    ::eventfd_read(wake_, &ignored);
    for (size_t i = 0; i < flows.size(); ++i)
      if (waits[i + 2].revents != 0) fill(*flows[i], mode);
    if (waits[0].revents != 0) accept_one();
  }
  for (Pair& pair : pairs_) reset(pair);
}

}  // namespace kiln::testing
