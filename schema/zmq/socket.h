// Shared by Listener and Connection: waking a poll, the I/O thread's events, frames that never
// block. Settings and what each is for:
//   MAXMSGSIZE       bytes of one frame: above it libzmq closes the connection before it allocates.
//                    Slightly more than a frame may have, so that frames slightly too large reach
//                    us and are counted.
//   SNDHWM, RCVHWM   whole messages per peer and direction.
//   HEARTBEAT_*      a dead host is noticed. Heartbeats prove the I/O thread only, so a worker's
//                    progress is judged by the coordinator's core.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace zmq {
class context_t;
class message_t;
class socket_t;
}  // namespace zmq

namespace kiln {

// Wakes a poll from another thread.
class SocketWake {
 public:
  SocketWake();
  ~SocketWake();
  SocketWake(const SocketWake&) = delete;
  SocketWake& operator=(const SocketWake&) = delete;
  int fd() const { return fd_; }
  void signal() const;
  bool take() const;

 private:
  const int fd_;
};

// The events that libzmq's I/O thread reports about a socket. One per context.
class SocketMonitor {
 public:
  struct Event {
    int number = 0;  // ZMQ_EVENT_*
    int value = 0;   // a descriptor, or an error's number
  };
  SocketMonitor(zmq::context_t& context, zmq::socket_t& watched, int events);
  ~SocketMonitor();
  void* handle();
  int fd() const;               // readable when events may have come since take() last had none
  std::optional<Event> take();  // nothing when there is none

 private:
  zmq::socket_t& watched_;
  const std::unique_ptr<zmq::socket_t> events_;
};

void set_common_options(zmq::socket_t& socket);

enum class Sent { kYes, kFull, kGone };
Sent send_frame(zmq::socket_t& socket, std::string_view frame, int flags = 0);

// False when nothing is there.
bool receive_frame(zmq::socket_t& socket, zmq::message_t& frame);
// Discards the frames that follow `frame` in its message; false when there were none.
bool discard_rest(zmq::socket_t& socket, const zmq::message_t& frame);

}  // namespace kiln
