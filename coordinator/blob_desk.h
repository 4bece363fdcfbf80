// BlobDesk: answers requests for blobs in pieces of about a megabyte, in turn among those who wait,
// so that a large answer holds up nobody and what waits in memory for a slow peer stays small.
// Blobs come from the shelf, then from the cache. One thread; the cache and the shelf outlive it.
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

  // False when this peer, or everybody together, has too many requests open.
  bool add(const PeerId& peer, BlobRequest request);
  void remove(const PeerId& peer);
  bool empty() const { return waiting_.empty(); }

  struct Piece {
    PeerId peer;
    BlobReply reply;
  };
  // The next piece for a peer that `can_take` one; nothing when there is none. Reads a bounded
  // number of files.
  std::optional<Piece> next(const std::function<bool(const PeerId&)>& can_take);

  // Blobs that were asked for and are not to be had, since the last call: absent, or corrupt.
  std::vector<Digest> take_missing();

 private:
  struct Transfer {
    PeerId peer;
    BlobRequest request;
    size_t next = 0;  // index into request.digests
  };
  Piece advance(Transfer& transfer);

  KernelCache& cache_;
  BlobShelf& shelf_;
  std::deque<Transfer> waiting_;
  std::map<PeerId, int> open_;  // transfers by peer
  std::vector<Digest> missing_;
};

}  // namespace kiln
