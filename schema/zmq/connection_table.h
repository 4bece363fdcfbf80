// ConnectionTable: the listener's TCP connections, as libzmq's I/O thread reports them, and the
// peer at the end of each. ZeroMQ has no call that ends one connection; here it can be cut.
//
// A descriptor number is used again as soon as its connection ends. Each entry therefore keeps the
// kernel's cookie of its socket, and nothing is done to a socket with another cookie. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <unordered_map>
#include <vector>

#include "schema/codec.h"
#include "schema/zmq/transport.h"
#include "schema/zmq/wire_watch.h"

namespace kiln {

struct PeerLink {
  int fd = -1;
  uint64_t cookie = 0;
  PeerId peer;      // empty: not heard yet
  std::string key;  // public key (Z85); empty without keys
  User user;
  bool dropped = false;  // cut; its end is not reported yet
  PartAssembly parts;    // of the message it sends now
  Traffic traffic;
};

class ConnectionTable {
 public:
  void accepted(int fd);  // may be called again for a known connection
  void ended(int fd);

  PeerLink* find(const PeerId& peer);  // null: no such peer, or gone; valid until the next call
  // `peer` was first heard on `fd`. Null when its connection is gone. The ROUTER still delivers what a
  // peer sent before it left, perhaps once its descriptor is another's; but it counts its peers' ids
  // upwards, so that the newest peer of a descriptor is the one with the greatest id.
  PeerLink* bind(int fd, const PeerId& peer, std::string key, User user);
  void cut(PeerLink& link);
  // The oldest connection that no peer was heard on and that is not cut: it makes room when there
  // are too many. Null: a peer was heard on every one.
  PeerLink* first_unheard();
  // The peers whose links satisfy `condition`.
  template <class Condition>
  std::vector<PeerId> peers_where(Condition condition) const {
    std::vector<PeerId> peers;
    for (const auto& [peer, link] : by_peer_)
      if (condition(*link)) peers.push_back(peer);
    return peers;
  }

  std::vector<PeerLink*> links();  // valid until the next accepted() or ended()
  size_t begun_bytes() const;      // bytes of incomplete messages
  PeerLink* largest_begun();       // null: nobody began one
  std::vector<PeerId> take_gone();
  size_t size() const { return links_.size(); }
  size_t open() const { return links_.size() - cut_; }  // not cut
  size_t open_of(const User& user) const;               // not cut, and heard under the user's key

 private:
  std::unordered_map<int, PeerLink> links_;        // by descriptor
  std::unordered_map<PeerId, PeerLink*> by_peer_;  // into links_
  PeerLink* last_ = nullptr;  // found last: a peer's answer follows its request
  std::vector<PeerId> gone_;
  std::deque<std::pair<int, uint64_t>> unheard_;  // descriptor, cookie; by age; some heard since
  std::unordered_map<int, uint32_t> newest_;      // by descriptor: number in its last peer's id
  size_t cut_ = 0;  // links that are cut and whose ends are not reported yet
  std::unordered_map<std::string, size_t> open_of_;  // by user name; users without one are left out
  void count_out(const PeerLink& link);
  void unbind(PeerLink& link);  // REQUIRES: it has a peer
};

}  // namespace kiln
