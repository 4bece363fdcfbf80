#include "worker/runner/protocol.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace kiln::runner {
namespace {

using Clock = std::chrono::steady_clock;

// The time left until a deadline, for poll(), in ms; -1 when there is none.
class Deadline {
 public:
  explicit Deadline(int64_t timeout_ms) : limited_(timeout_ms >= 0) {
    if (limited_) end_ = Clock::now() + std::chrono::milliseconds(timeout_ms);
  }
  int left_ms() const {
    if (!limited_) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, INT32_MAX));
  }

 private:
  bool limited_;
  Clock::time_point end_;
};

// Waits for `events` on `socket`.
Status wait(int socket, short events, const Deadline& deadline) {
  for (;;) {
    pollfd poll_fd{socket, events, 0};
    const int ready = ::poll(&poll_fd, 1, deadline.left_ms());
    if (ready > 0) return {};
    if (ready == 0) return fail(Code::kDeadlineExceeded, "no answer in time");
    if (errno != EINTR) return fail(Code::kInternal, std::strerror(errno));
  }
}

Status receive_exactly(int socket, char* data, size_t size, const Deadline& deadline) {
  while (size > 0) {
    TRY_STATUS(wait(socket, POLLIN, deadline));
    const ssize_t n = ::recv(socket, data, size, MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return fail(Code::kUnavailable, std::strerror(errno));
    if (n == 0) return fail(Code::kUnavailable, "the other end closed the socket");
    data += n;
    size -= static_cast<size_t>(n);
  }
  return {};
}

}  // namespace

Status send_frame(int socket, std::string_view frame, int64_t timeout_ms) {
  const Deadline deadline(timeout_ms);
  while (!frame.empty()) {
    TRY_STATUS(wait(socket, POLLOUT, deadline));
    const ssize_t n = ::send(socket, frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return fail(Code::kUnavailable, std::strerror(errno));
    frame.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

Result<std::string> receive_frame(int socket, int64_t timeout_ms) {
  const Deadline deadline(timeout_ms);
  uint32_t size = 0;
  TRY_STATUS(receive_exactly(socket, reinterpret_cast<char*>(&size), sizeof size, deadline));
  if (size == 0 || size > kMaxFrameBytes)
    return fail(Code::kCorruption, "frame size out of bounds");
  std::string body(size, '\0');
  TRY_STATUS(receive_exactly(socket, body.data(), size, deadline));
  return body;
}

}  // namespace kiln::runner
