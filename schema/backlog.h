// Backlogs: frames for peers that ZeroMQ could not take at once, by peer and in order. What one
// peer leaves waiting is bounded here; what all leave together by the watch (wire_watch.h), which
// counts a frame from when it enters. One thread.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "schema/socket.h"
#include "schema/transport.h"

namespace kiln {

class Backlogs {
 public:
  bool empty() const { return by_peer_.empty(); }
  bool contains(const PeerId& peer) const { return !empty() && by_peer_.contains(peer); }
  // False: as much waits for the peer as may.
  bool add(const PeerId& peer, std::string_view frame);
  void remove(const PeerId& peer) { by_peer_.erase(peer); }
  // Gives `send` what waits for each peer, until it takes no more. Nothing waits any more for who
  // is gone.
  void flush(const std::function<Sent(const PeerId&, std::string_view)>& send);

  static constexpr size_t kMaxFrames = 4096, kMaxBytes = 64 << 20;  // a peer

 private:
  struct Backlog {
    std::deque<std::string> frames;
    size_t bytes = 0;
  };
  std::unordered_map<PeerId, Backlog> by_peer_;  // only of peers with something in it
};

}  // namespace kiln
