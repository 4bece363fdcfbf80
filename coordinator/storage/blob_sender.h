// BlobSender: answers requests for blobs one frame at a time, taking turns among the requests, and
// never sends more bytes than the receiver's credit: a large reply delays nobody, and little memory
// waits for a slow peer. Blobs come from memory, then from the store; a request whose next blob the
// store has yet to bring waits aside, and the blobs after it are asked for meanwhile. Who can read links gets one, where they
// are handed out, to what memory does not have: those bytes never come here. One thread, the loop's;
// everything it is given outlives it.
//
// Places are shared: no user (without keys, no connection) may hold more of them than are left, so
// a user that takes all it can leaves half, and many such users leave as much as each has.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/store.h"
#include "coordinator/event_loop.h"
#include "coordinator/storage/blob_memory_cache.h"
#include "schema/zmq/transport.h"

namespace kiln {

class BlobSender {
 public:
  BlobSender(ReadableStore& store, BlobMemoryCache& blob_memory, JobQueue& loop,
             bool hands_out_links = false)
      : store_(store), memory_(blob_memory), loop_(loop), hands_out_links_(hands_out_links) {}

  // False when this peer has too many requests open, or together with the rest of its user's asks
  // for too many blobs. `user` is empty without keys.
  bool add(const PeerId& peer, const std::string& user, BlobRequest request, int64_t now_ms);
  void add_credit(const PeerId& peer, const BlobCredit& credit);
  void remove(const PeerId& peer);
  // True if no request with credit can go on by itself.
  bool idle() const { return ready_.empty(); }
  int64_t links() const { return links_; }  // handed out

  // Ends the requests that got no credit for kStalledMs; their peers.
  std::vector<PeerId> take_stalled(int64_t now_ms);
  static constexpr int64_t kStalledMs = 30'000;

  struct Piece {
    PeerId peer;
    BlobReply reply;
  };
  // The next piece for a peer that gave credit and that `can_take` one; nothing if there is none.
  // Asks for a bounded number of blobs. A blob that cannot be read now (no descriptors or memory
  // left, the store is away) is tried again by later calls for some seconds of the caller's clock;
  // then the peer hears why, and that it and those after it are missing: a program without one of its
  // binaries is none.
  std::optional<Piece> next(int64_t now_ms, const std::function<bool(const PeerId&)>& can_take);

  // Requested blobs that are lost, since the last call: absent or corrupt. What only cannot be read
  // now is none of them: an outage of a store must not empty it.
  std::vector<Digest> take_missing();

 private:
  struct Transfer;
  using Transfers = std::list<Transfer>;
  // A blob, or a link to it, that the store was asked for.
  struct Fetch {
    int64_t begun_ms = 0;
    std::optional<Result<std::string>> answer{};  // none: it is under way
    std::vector<Transfers::iterator> waiting{};   // in waiting_
  };
  struct Transfer {
    PeerId peer;
    std::string holder;  // of its place: the user, or the peer
    BlobRequest request;
    Transfers* in = nullptr;                                 // the list that it stands in
    size_t next = 0;                                         // index into request.digests
    int64_t offset = 0;                                      // of that blob
    std::shared_ptr<Fetch> fetch = nullptr;                  // of that blob, once it was asked for
    std::map<size_t, std::shared_ptr<Fetch>> links_ahead{};  // of later ones, by their index
    std::optional<int64_t> refused_ms = {};                  // since when it cannot be read
    int64_t try_again_ms = 0;
    bool has_no_link = false;  // that blob
    int64_t stalled_ms = 0;    // since when it has no credit
  };
  struct Held {
    size_t transfers = 0, digests = 0;
    bool operator==(const Held&) const = default;
  };
  struct Wanted {
    Digest digest;
    bool as_link = false;
    auto operator<=>(const Wanted&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  // The form in which a transfer's next blob is sent.
  struct Opened {
    const std::string* text = nullptr;  // null: it is not here yet
    bool is_link = false;
  };
  Piece advance(Transfer& transfer, int64_t now_ms);
  Wanted wanted(const Transfer& transfer, size_t index) const;
  bool has_room(const Held& held, size_t digests) const;
  void move(Transfers& to, Transfers::iterator transfer);
  void end(Transfers::iterator transfer);
  // The next blob, from memory or else from the store, to which a question is counted.
  Result<Opened> open(Transfer& transfer, int64_t now_ms, int& reads);
  std::shared_ptr<Fetch> fetch(const Wanted& wanted, int64_t now_ms);
  void fetch_ahead(Transfer& transfer, int64_t now_ms);
  void brought(const Wanted& wanted, Result<std::string> answer);

  ReadableStore& store_;
  BlobMemoryCache& memory_;
  JobQueue& loop_;
  const bool hands_out_links_;
  int64_t links_ = 0;
  Transfers ready_;    // those that can go on, whose turn is next first
  Transfers waiting_;  // for a blob
  Transfers stalled_;  // those without credit, the longest first
  std::map<PeerId, std::vector<Transfers::iterator>> open_;  // into all three
  std::map<std::string, Held> held_;                         // by holder
  std::map<Wanted, std::shared_ptr<Fetch>> under_way_;
  Held all_;
  std::vector<Digest> missing_;
};

}  // namespace kiln
