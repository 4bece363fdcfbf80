// ConnectionTable: the listener's TCP connections, as libzmq's I/O thread tells of them, and which
// peer is at the end of each. ZeroMQ has no call that ends one connection; here it can be cut.
//
// A descriptor number is used again as soon as its connection ends, so each entry remembers the
// kernel's cookie of its socket, and nothing is done to a socket with another. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <unordered_map>
#include <vector>

#include "schema/parts.h"
#include "schema/transport.h"
#include "schema/wire_watch.h"

namespace kiln {

struct PeerLink {
  int fd = -1;
  uint64_t cookie = 0;
  PeerId peer;      // empty: not heard yet
  std::string key;  // that it came in with; empty without keys
  User user;
  bool dropped = false;  // cut; its end is not reported yet
  PartAssembly parts;    // of what it sends
  Traffic traffic;
};

class ConnectionTable {
 public:
  void accepted(int fd);  // may be told more than once
  void ended(int fd);

  PeerLink* find(const PeerId& peer);  // null: no such peer, or gone; valid until the next call
  // `peer` was first heard on `fd`. Null when that connection is gone or another's.
  PeerLink* bind(int fd, const PeerId& peer, std::string key, User user);
  void cut(PeerLink& link);
  // The connection that was accepted first of those that no peer was heard on and that are not cut:
  // who makes room when there are too many. Null: every one was heard.
  PeerLink* first_unheard();
  void cut_all(const std::vector<PeerId>& peers);
  // Of links that a peer was heard on.
  template <class Condition>
  std::vector<PeerId> peers_where(Condition condition) const {
    std::vector<PeerId> peers;
    for (const auto& [peer, link] : by_peer_)
      if (condition(*link)) peers.push_back(peer);
    return peers;
  }

  std::vector<PeerLink*> links();  // valid until the next accepted() or ended()
  size_t begun_bytes() const;      // of messages that are not whole yet
  PeerLink* largest_begun();       // null: nobody began one
  std::vector<PeerId> take_gone();
  size_t size() const { return links_.size(); }
  size_t open() const { return links_.size() - cut_; }  // those that are not cut
  size_t open_of(const User& user) const;               // of them, those heard under its key

 private:
  std::unordered_map<int, PeerLink> links_;        // by descriptor
  std::unordered_map<PeerId, PeerLink*> by_peer_;  // into links_
  PeerLink* last_ = nullptr;                       // found; who asks once asks again to answer
  std::vector<PeerId> gone_;
  std::deque<std::pair<int, uint64_t>> unheard_;  // descriptor, cookie; by age; some heard by now
  size_t cut_ = 0;                                // of links_, whose ends are not reported yet
  std::unordered_map<std::string, size_t> open_of_;  // by user, of those that have a name
  void count_out(const PeerLink& link);
};

}  // namespace kiln
