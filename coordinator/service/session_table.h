// SessionTable: the connected peers that said Hello: their role and user, when they were last
// heard, and which connection speaks for which worker. One thread.
//
// A worker's name belongs to its user: while its connection lives, and for an hour after, no other
// user may report under that name. Among the same user's connections, only one that shows the token
// of the last session (Welcome.session, Hello.token) takes over from one that still seems alive.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "coordinator/core/events.h"
#include "schema/zmq/transport.h"

namespace kiln {

Viewer viewer_of(const User& user);
Audience audience_of(const User& user);  // of what its key has made
Standing standing_of(const User& user);  // of a worker

struct Session {
  Role role = Role::kClient;
  int64_t heard_ms = 0;
  User user{};
  std::string resumes{};  // token of an earlier session, if the peer showed one
  std::string token{};    // of this one; the table makes it
  WorkerId worker{};      // of a worker's connection, once it reported
  int hellos = 1;         // on this connection
  std::set<uint64_t> looking{};
  std::shared_ptr<const TemplateVersions> templates{};  // a worker's; never null for one

  Viewer viewer() const { return viewer_of(user); }
  bool may_have(const Audience& program) const {
    return program.is_all() || program.admits(viewer());
  }
  Audience audience() const { return audience_of(user); }  // of what is tuned for it

  // Turns the request of a user who may only read into a look-up, so that it starts no work; a miss
  // is refused instead of answered with kNotFound.
  void look_only(CompileRequest& request);
  // Turns the reply to such a request into a refusal if it is a miss; leaves out what a compiler said
  // of another user's source, which follows an error's first line.
  void judge(CompileReply& reply);
  // Leaves out what is not this user's to know: who may only read learns of the programs that are
  // tuned without a client their number.
  void judge(Stats& stats) const;
};

class SessionTable {
 public:
  explicit SessionTable(size_t max_sessions) : max_sessions_(max_sessions) {}

  // Null when there are too many. Saying Hello again starts over.
  const Session* open(const PeerId& peer, Session session);
  Session* find(const PeerId& peer);
  // The session that ends; its worker is empty if another connection speaks for it by now.
  Session close(const PeerId& peer);

  // `peer` speaks for `worker` from now on; the peer that did before, if it is still `connected`.
  // kPermissionDenied: the name is another user's; kUnavailable: a live connection has it;
  // kInvalidArgument: the peer speaks for another worker.
  Result<PeerId> claim_worker(const PeerId& peer, const WorkerId& worker,
                              const std::function<bool(const PeerId&)>& connected, int64_t now_ms);
  const PeerId* peer_of(const WorkerId& worker) const;  // null when it is not connected
  std::vector<PeerId> workers() const;

  size_t size() const { return sessions_.size(); }

  // Up to `limit` peers not heard since `before_ms`. Calls go round the table, so that each gets
  // its turn.
  std::vector<PeerId> quiet(int64_t before_ms, size_t limit);

 private:
  const size_t max_sessions_;
  std::unordered_map<PeerId, Session> sessions_;  // each message asks for its sender's
  std::set<PeerId> order_;                        // of them, for quiet()
  std::map<WorkerId, PeerId> workers_;
  struct Owner {
    std::string user;
    int64_t seen_ms = 0;
  };
  std::map<WorkerId, Owner> owners_;  // of names
  PeerId cursor_;                     // in order_
};

}  // namespace kiln
