// SessionTable: who is connected: peers that said Hello, in which role, when they were last heard,
// and which connection speaks for which worker. One thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "coordinator/core/core.h"
#include "schema/transport.h"

namespace kiln {

struct Session {
  Role role = Role::kClient;
  int64_t heard_ms = 0;
  WorkerId worker;  // of a worker's connection, once it reported
};

class SessionTable {
 public:
  explicit SessionTable(size_t max_sessions) : max_sessions_(max_sessions) {}

  // False when there are too many. Saying Hello again starts over.
  bool open(const PeerId& peer, Role role, int64_t now_ms);
  Session* find(const PeerId& peer);
  // What is forgotten with the peer; an empty worker when another connection speaks for it by now.
  Session close(const PeerId& peer);

  // `peer` speaks for `worker` from now on.
  void bind_worker(const PeerId& peer, const WorkerId& worker);
  const PeerId* peer_of(const WorkerId& worker) const;  // null when it is not connected
  std::vector<PeerId> workers() const;

  size_t size() const { return sessions_.size(); }

  // Up to `limit` peers not heard since `before_ms`. Calls go round the table, so that each gets
  // its turn.
  std::vector<PeerId> quiet(int64_t before_ms, size_t limit);

 private:
  const size_t max_sessions_;
  std::map<PeerId, Session> sessions_;
  std::map<WorkerId, PeerId> workers_;
  PeerId cursor_;  // of quiet()
};

}  // namespace kiln
