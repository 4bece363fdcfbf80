#include "schema/zmq/backlog.h"

#include <iterator>

namespace kiln {

bool Backlogs::add(const PeerId& peer, std::string_view frame) {
  Backlog& backlog = by_peer_[peer];
  if (backlog.frames.size() >= kMaxFrames || backlog.bytes + frame.size() > kMaxBytes) return false;
  backlog.bytes += frame.size();
  backlog.frames.emplace_back(frame);
  return true;
}

void Backlogs::flush(const std::function<Sent(const PeerId&, std::string_view)>& send) {
  for (auto it = by_peer_.begin(); it != by_peer_.end();) {
    auto& [peer, backlog] = *it;
    Sent sent = Sent::kYes;
    while (!backlog.frames.empty() && sent == Sent::kYes) {
      sent = send(peer, backlog.frames.front());
      if (sent != Sent::kYes) break;
      backlog.bytes -= backlog.frames.front().size();
      backlog.frames.pop_front();
    }
    it = backlog.frames.empty() || sent == Sent::kGone ? by_peer_.erase(it) : std::next(it);
  }
}

}  // namespace kiln
