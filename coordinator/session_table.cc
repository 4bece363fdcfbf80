#include "coordinator/session_table.h"

namespace kiln {

bool SessionTable::open(const PeerId& peer, Role role, int64_t now_ms) {
  if (sessions_.size() >= max_sessions_ && !sessions_.contains(peer)) return false;
  sessions_[peer] = Session{role, now_ms, {}};
  return true;
}

Session* SessionTable::find(const PeerId& peer) {
  const auto found = sessions_.find(peer);
  return found == sessions_.end() ? nullptr : &found->second;
}

Session SessionTable::close(const PeerId& peer) {
  const auto found = sessions_.find(peer);
  if (found == sessions_.end()) return {};
  Session session = std::move(found->second);
  sessions_.erase(found);
  const auto speaker = workers_.find(session.worker);
  if (speaker == workers_.end() || speaker->second != peer) {
    session.worker.clear();
  } else {
    workers_.erase(speaker);
  }
  return session;
}

void SessionTable::bind_worker(const PeerId& peer, const WorkerId& worker) {
  Session* session = find(peer);
  if (session == nullptr || session->worker == worker) return;
  session->worker = worker;
  workers_[worker] = peer;
}

const PeerId* SessionTable::peer_of(const WorkerId& worker) const {
  const auto found = workers_.find(worker);
  return found == workers_.end() ? nullptr : &found->second;
}

std::vector<PeerId> SessionTable::workers() const {
  std::vector<PeerId> peers;
  for (const auto& [worker, peer] : workers_) peers.push_back(peer);
  return peers;
}

std::vector<PeerId> SessionTable::quiet(int64_t before_ms, size_t limit) {
  std::vector<PeerId> peers;
  auto at = sessions_.upper_bound(cursor_);
  for (size_t seen = 0; seen < sessions_.size() && peers.size() < limit; ++seen) {
    if (at == sessions_.end()) at = sessions_.begin();
    if (at->second.heard_ms < before_ms) peers.push_back(at->first);
    cursor_ = at->first;
    ++at;
  }
  return peers;
}

}  // namespace kiln
