#include "coordinator/blob_desk.h"

#include <utility>

namespace kiln {
namespace {

constexpr size_t kPieceBytes = 1 << 20;  // a piece ends with the blob that reaches it
constexpr int kReadsAPiece = 64;
constexpr int kMaxOpenAPeer = 64;
constexpr size_t kMaxOpen = 20'000;

}  // namespace

bool BlobDesk::add(const PeerId& peer, BlobRequest request) {
  int& open = open_[peer];
  if (open >= kMaxOpenAPeer || waiting_.size() >= kMaxOpen) {
    if (open == 0) open_.erase(peer);
    return false;
  }
  ++open;
  waiting_.push_back({peer, std::move(request)});
  return true;
}

void BlobDesk::remove(const PeerId& peer) {
  if (open_.erase(peer) == 0) return;
  std::erase_if(waiting_, [&](const Transfer& transfer) { return transfer.peer == peer; });
}

std::optional<BlobDesk::Piece> BlobDesk::next(const std::function<bool(const PeerId&)>& can_take) {
  for (size_t i = waiting_.size(); i > 0; --i) {
    Transfer transfer = std::move(waiting_.front());
    waiting_.pop_front();
    if (!can_take(transfer.peer)) {
      waiting_.push_back(std::move(transfer));
      continue;
    }
    Piece piece = advance(transfer);
    if (!piece.reply.last) {
      waiting_.push_back(std::move(transfer));
    } else if (const auto open = open_.find(transfer.peer); --open->second == 0) {
      open_.erase(open);
    }
    return piece;
  }
  return std::nullopt;
}

BlobDesk::Piece BlobDesk::advance(Transfer& transfer) {
  Piece piece{transfer.peer, {}};
  BlobReply& reply = piece.reply;
  reply.request = transfer.request.request;
  const std::vector<Digest>& digests = transfer.request.digests;
  size_t bytes = 0;
  int reads = 0;
  while (transfer.next < digests.size() && bytes < kPieceBytes && reads < kReadsAPiece) {
    const Digest& digest = digests[transfer.next++];
    if (const std::string* blob = shelf_.find(digest)) {
      reply.blobs.push_back(*blob);
      bytes += blob->size();
      continue;
    }
    ++reads;
    if (auto read = cache_.blob(digest)) {
      reply.blobs.push_back(*read);
      bytes += read->size();
      shelf_.put(digest, *std::move(read));
    } else {
      reply.missing.push_back(digest);
      missing_.push_back(digest);
    }
  }
  reply.last = transfer.next == digests.size();
  return piece;
}

std::vector<Digest> BlobDesk::take_missing() {
  return std::exchange(missing_, {});
}

}  // namespace kiln
