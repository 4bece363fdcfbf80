// BlobSender: answers requests for blobs one frame at a time, taking turns among the requests, and
// never sends more bytes than the receiver's credit: a large reply delays nobody, and little memory
// waits for a slow peer. Blobs come from memory, then from the cache. One thread; the cache and the
// memory cache outlive it.
//
// Places are shared: no user (without keys, no connection) may hold more of them than are left, so
// a user that takes all it can leaves half, and many such users leave as much as each has.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cache/kernel_cache.h"
#include "coordinator/storage/blob_memory_cache.h"
#include "schema/zmq/transport.h"

namespace kiln {

class BlobSender {
 public:
  BlobSender(KernelCache& cache, BlobMemoryCache& blob_memory)
      : cache_(cache), memory_(blob_memory) {}

  // False when this peer has too many requests open, or together with the rest of its user's asks
  // for too many blobs. `user` is empty without keys.
  bool add(const PeerId& peer, const std::string& user, BlobRequest request, int64_t now_ms);
  void add_credit(const PeerId& peer, const BlobCredit& credit);
  void remove(const PeerId& peer);
  // True if no request with credit waits.
  bool idle() const { return ready_.empty(); }

  // Ends the requests that got no credit for kStalledMs; their peers.
  std::vector<PeerId> take_stalled(int64_t now_ms);
  static constexpr int64_t kStalledMs = 30'000;

  struct Piece {
    PeerId peer;
    BlobReply reply;
  };
  // The next piece for a peer that gave credit and that `can_take` one; nothing if there is none.
  // Reads a bounded number of files. A file that cannot be read now (no descriptors or memory left)
  // is tried again by later calls for some seconds of the caller's clock; then it counts as
  // missing.
  std::optional<Piece> next(int64_t now_ms, const std::function<bool(const PeerId&)>& can_take);

  // Requested blobs that are lost, since the last call: absent, corrupt, or in an unreadable part
  // of the disk.
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
  // The blob, from the blob_memory or else the cache, to which a read of a file is counted.
  Result<const std::string*> open(const Digest& digest, int& reads);

  KernelCache& cache_;
  BlobMemoryCache& memory_;
  Transfers ready_;    // those with credit, whose turn is next first
  Transfers stalled_;  // those without, the longest first
  std::map<PeerId, std::vector<Transfers::iterator>> open_;  // into both
  std::map<std::string, Held> held_;                         // by holder
  Held all_;
  std::vector<Digest> missing_;
  std::string uncached_;  // the last blob that the blob_memory has no room for
};

}  // namespace kiln
