#include "schema/zmq/socket.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <zmq.hpp>

#include "compiler_core/base/check.h"
#include "schema/codec.h"

namespace kiln {
namespace {

constexpr int64_t kLargestFrame = kMaxFrameBytes + 4096;
constexpr int kHighWaterMark = 100;  // messages per peer
constexpr int kHeartbeatMs = 2000, kHeartbeatTimeoutMs = 8000;
constexpr int kHandshakeMs = 10'000;
constexpr int kLingerMs = 200;

}  // namespace

SocketWake::SocketWake() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  CHECK(fd_ >= 0, "a process can have one more eventfd");
}
SocketWake::~SocketWake() {
  close(fd_);
}
void SocketWake::signal() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof one);  // full: awake anyway
}
bool SocketWake::take() const {
  uint64_t count = 0;
  return read(fd_, &count, sizeof count) == sizeof count;
}

SocketMonitor::SocketMonitor(zmq::context_t& context, zmq::socket_t& watched, int events)
    : watched_(watched), events_(std::make_unique<zmq::socket_t>(context, zmq::socket_type::pair)) {
  static constexpr char kAddress[] = "inproc://monitor";
  zmq_socket_monitor(watched.handle(), kAddress, events);
  events_->set(zmq::sockopt::rcvhwm, 0);  // the I/O thread would block on a full one
  events_->connect(kAddress);
}
SocketMonitor::~SocketMonitor() {
  zmq_socket_monitor(watched_.handle(), nullptr, 0);
}
void* SocketMonitor::handle() {
  return events_->handle();
}

int SocketMonitor::fd() const {
  return events_->get(zmq::sockopt::fd);
}

std::optional<SocketMonitor::Event> SocketMonitor::take() {
  zmq::message_t event, address;
  if (!events_->recv(event, zmq::recv_flags::dontwait)) return std::nullopt;
  (void)events_->recv(address, zmq::recv_flags::dontwait);
  uint16_t number = 0;
  int32_t value = 0;
  if (event.size() >= sizeof number + sizeof value) {
    std::memcpy(&number, event.data(), sizeof number);
    std::memcpy(&value, event.data<char>() + sizeof number, sizeof value);
  }
  return Event{number, value};
}

void set_common_options(zmq::socket_t& socket) {
  socket.set(zmq::sockopt::maxmsgsize, kLargestFrame);
  socket.set(zmq::sockopt::sndhwm, kHighWaterMark);
  socket.set(zmq::sockopt::rcvhwm, kHighWaterMark);
  socket.set(zmq::sockopt::linger, kLingerMs);
  socket.set(zmq::sockopt::handshake_ivl, kHandshakeMs);
  socket.set(zmq::sockopt::heartbeat_ivl, kHeartbeatMs);
  socket.set(zmq::sockopt::heartbeat_timeout, kHeartbeatTimeoutMs);
}

Sent send_frame(zmq::socket_t& socket, std::string_view frame, int flags) {
  const int sent = zmq_send(socket.handle(), frame.data(), frame.size(), flags | ZMQ_DONTWAIT);
  if (sent >= 0) return Sent::kYes;
  return errno == EAGAIN || errno == EINTR ? Sent::kFull : Sent::kGone;
}

bool receive_frame(zmq::socket_t& socket, zmq::message_t& frame) {
  return zmq_msg_recv(frame.handle(), socket.handle(), ZMQ_DONTWAIT) >= 0;
}

bool discard_rest(zmq::socket_t& socket, const zmq::message_t& frame) {
  bool more = frame.more();
  const bool had_more = more;
  while (more) {
    zmq::message_t part;
    if (!receive_frame(socket, part)) break;
    more = part.more();
  }
  return had_more;
}

}  // namespace kiln
