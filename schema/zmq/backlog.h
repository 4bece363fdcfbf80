// Backlogs: frames for peers that ZeroMQ could not take at once, by peer and in order. The frames
// of one peer are bounded here, those of all peers together by the watch (wire_watch.h), which
// counts a frame from when it enters. One thread.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "schema/zmq/socket.h"
#include "schema/zmq/transport.h"

namespace kiln {

class Backlogs {
 public:
  bool empty() const { return by_peer_.empty(); }
  bool contains(const PeerId& peer) const { return !empty() && by_peer_.contains(peer); }
  // False: the peer's bound is reached.
  bool add(const PeerId& peer, std::string_view frame);
  void remove(const PeerId& peer) { by_peer_.erase(peer); }
  // Gives `send` each peer's frames until it takes no more. The frames of peers that are gone are
  // discarded.
  void flush(const std::function<Sent(const PeerId&, std::string_view)>& send);

  static constexpr size_t kMaxFrames = 4096, kMaxBytes = 64 << 20;  // per peer

 private:
  struct Backlog {
    std::deque<std::string> frames;
    size_t bytes = 0;
  };
  std::unordered_map<PeerId, Backlog> by_peer_;  // peers with frames only
};

}  // namespace kiln
