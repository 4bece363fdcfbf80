// BlobDesk: answers requests for blobs a frame at a time, in turn among those who wait, and never
// more bytes ahead of a receiver than the credit it gave: a large answer holds up nobody, and what
// waits in memory for a slow peer stays small. Blobs come from the shelf, then from the cache. One
// thread; the cache and the shelf outlive it.
//
// Places are shared: nobody (a user; without keys a connection) may hold more of them than are
// left, so that one who takes all it can leaves half, and many who do leave as much as each has.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cache/kernel_cache.h"
#include "coordinator/blob_shelf.h"
#include "schema/zmq/transport.h"

namespace kiln {

class BlobDesk {
 public:
  BlobDesk(KernelCache& cache, BlobShelf& shelf) : cache_(cache), shelf_(shelf) {}

  // False when this peer has too many requests open, or together with the rest of its user's asks
  // for too many blobs. `user` is empty without keys.
  bool add(const PeerId& peer, const std::string& user, BlobRequest request, int64_t now_ms);
  void add_credit(const PeerId& peer, const BlobCredit& credit);
  void remove(const PeerId& peer);
  // Nobody waits who gave credit.
  bool idle() const { return ready_.empty(); }

  // Requests that nobody gave credit for in kStalledMs: they end here.
  std::vector<PeerId> take_stalled(int64_t now_ms);
  static constexpr int64_t kStalledMs = 30'000;

  struct Piece {
    PeerId peer;
    BlobReply reply;
  };
  // The next piece for a peer that `can_take` one and gave credit for it; nothing when there is
  // none. Reads a bounded number of files. A file that cannot be read now (no descriptors left, no
  // memory) is tried again by later calls, for some seconds of the caller's clock; then that peer
  // is told that it is missing.
  std::optional<Piece> next(int64_t now_ms, const std::function<bool(const PeerId&)>& can_take);

  // Blobs that were asked for and are lost, since the last call: absent, corrupt, or in a part of
  // the disk that cannot be read.
  std::vector<Digest> take_missing();

 private:
  struct Transfer {
    PeerId peer;
    std::string holder;  // of its place: the user, or the peer
    BlobRequest request;
    size_t next = 0;                         // index into request.digests
    int64_t offset = 0;                      // of that blob
    std::optional<int64_t> refused_ms = {};  // when it could first not be read
    int64_t stalled_ms = 0;                  // since when it has no credit
  };
  using Transfers = std::list<Transfer>;
  struct Held {
    size_t transfers = 0, digests = 0;
    bool operator==(const Held&) const = default;
  };
  Piece advance(Transfer& transfer, int64_t now_ms);
  bool has_room(const Held& held, size_t digests) const;
  void end(Transfers& in, Transfers::iterator transfer);
  // The blob, from the shelf or else the cache, to which a read of a file is counted.
  Result<const std::string*> open(const Digest& digest, int& reads);

  KernelCache& cache_;
  BlobShelf& shelf_;
  Transfers ready_;    // those with credit, whose turn is next first
  Transfers stalled_;  // those without, the longest first
  std::map<PeerId, std::vector<Transfers::iterator>> open_;  // into both
  std::map<std::string, Held> held_;                         // by holder
  Held all_;
  std::vector<Digest> missing_;
  std::string unshelved_;  // the last blob that the shelf has no room for
};

}  // namespace kiln
