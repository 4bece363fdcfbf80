// BlobDesk: answers requests for blobs a frame at a time, in turn among those who wait, and never
// more bytes ahead of a receiver than the credit it gave: a large answer holds up nobody, and what
// waits in memory for a slow peer stays small. Blobs come from the shelf, then from the cache. One
// thread; the cache and the shelf outlive it.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "cache/kernel_cache.h"
#include "coordinator/blob_shelf.h"
#include "schema/transport.h"

namespace kiln {

class BlobDesk {
 public:
  BlobDesk(KernelCache& cache, BlobShelf& shelf) : cache_(cache), shelf_(shelf) {}

  // False when this peer, or everybody together, has too many requests open, or together they ask
  // for too many blobs.
  bool add(const PeerId& peer, BlobRequest request);
  void add_credit(const PeerId& peer, const BlobCredit& credit);
  void remove(const PeerId& peer);
  bool empty() const { return waiting_.empty(); }

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
    BlobRequest request;
    size_t next = 0;                         // index into request.digests
    int64_t offset = 0;                      // of that blob
    std::optional<int64_t> refused_ms = {};  // when it could first not be read
  };
  Piece advance(Transfer& transfer, int64_t now_ms);
  // The blob, from the shelf or else the cache, to which a read of a file is counted.
  Result<const std::string*> open(const Digest& digest, int& reads);

  KernelCache& cache_;
  BlobShelf& shelf_;
  std::deque<Transfer> waiting_;
  std::map<PeerId, int> open_;  // transfers by peer
  size_t digests_ = 0;          // of all transfers: what they keep
  std::vector<Digest> missing_;
  std::string unshelved_;  // the last blob that the shelf has no room for
};

}  // namespace kiln
