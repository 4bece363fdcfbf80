#include "coordinator/blob_desk.h"

#include <algorithm>
#include <utility>

namespace kiln {
namespace {

constexpr int64_t kPieceBytes = 128 << 10;
constexpr int kReadsAPiece = 16;
constexpr int kMaxOpenAPeer = 16;
constexpr size_t kMaxOpen = 20'000;
constexpr size_t kMaxDigests = 1 << 20;  // 32 MiB
constexpr int64_t kRefusedPatienceMs = 2'000;

// Of a blob that cannot be read. Anything else is this process's own trouble, which passes: the
// blob is as good as ever.
bool is_lost(Code code) {
  return code == Code::kNotFound || code == Code::kCorruption || code == Code::kUnavailable;
}

}  // namespace

bool BlobDesk::add(const PeerId& peer, BlobRequest request) {
  int& open = open_[peer];
  if (open >= kMaxOpenAPeer || waiting_.size() >= kMaxOpen ||
      digests_ + request.digests.size() > kMaxDigests) {
    if (open == 0) open_.erase(peer);
    return false;
  }
  ++open;
  digests_ += request.digests.size();
  request.credit = std::min(request.credit, kBlobWindowBytes);
  waiting_.push_back({peer, std::move(request)});
  return true;
}

void BlobDesk::add_credit(const PeerId& peer, const BlobCredit& credit) {
  for (Transfer& transfer : waiting_) {
    if (transfer.peer != peer || transfer.request.request != credit.request) continue;
    int64_t& held = transfer.request.credit;
    held = std::min(held + std::min(credit.bytes, kBlobWindowBytes), kBlobWindowBytes);
    return;
  }
}

void BlobDesk::remove(const PeerId& peer) {
  if (open_.erase(peer) == 0) return;
  std::erase_if(waiting_, [&](const Transfer& transfer) {
    if (transfer.peer == peer) digests_ -= transfer.request.digests.size();
    return transfer.peer == peer;
  });
}

std::optional<BlobDesk::Piece> BlobDesk::next(int64_t now_ms,
                                              const std::function<bool(const PeerId&)>& can_take) {
  for (size_t i = waiting_.size(); i > 0; --i) {
    Transfer transfer = std::move(waiting_.front());
    waiting_.pop_front();
    if (transfer.request.credit <= 0 || !can_take(transfer.peer)) {
      waiting_.push_back(std::move(transfer));
      continue;
    }
    Piece piece = advance(transfer, now_ms);
    if (piece.reply.last) digests_ -= transfer.request.digests.size();
    if (!piece.reply.last) {
      const bool has_news = !piece.reply.chunks.empty() || !piece.reply.missing.empty();
      waiting_.push_back(std::move(transfer));
      if (!has_news) continue;
    } else if (const auto open = open_.find(transfer.peer); --open->second == 0) {
      open_.erase(open);
    }
    return piece;
  }
  return std::nullopt;
}

BlobDesk::Piece BlobDesk::advance(Transfer& transfer, int64_t now_ms) {
  Piece piece{transfer.peer, {}};
  BlobReply& reply = piece.reply;
  reply.request = transfer.request.request;
  const std::vector<Digest>& digests = transfer.request.digests;
  int64_t room = std::min(kPieceBytes, transfer.request.credit);
  int reads = 0;
  while (transfer.next < digests.size() && room > 0 && reads < kReadsAPiece) {
    const Digest& digest = digests[transfer.next];
    const Result<const std::string*> opened = open(digest, reads);
    if (!opened) {
      const bool lost = is_lost(opened.error().code);
      if (!transfer.refused_ms) transfer.refused_ms = now_ms;
      if (!lost && now_ms - *transfer.refused_ms < kRefusedPatienceMs) break;
      reply.missing.push_back(digest);
      if (lost) missing_.push_back(digest);
      transfer.refused_ms.reset();
      transfer.offset = 0;
      ++transfer.next;
      continue;
    }
    transfer.refused_ms.reset();
    const std::string* const blob = *opened;
    const auto total = static_cast<int64_t>(blob->size());
    const int64_t size = std::min(room, total - transfer.offset);
    reply.chunks.push_back(
        {digest, transfer.offset, total,
         blob->substr(static_cast<size_t>(transfer.offset), static_cast<size_t>(size))});
    room -= std::max<int64_t>(size, 1);  // so that empty ones do not fill a frame either
    transfer.request.credit -= size;
    transfer.offset += size;
    if (transfer.offset < total) continue;
    transfer.offset = 0;
    ++transfer.next;
  }
  reply.last = transfer.next == digests.size();
  return piece;
}

Result<const std::string*> BlobDesk::open(const Digest& digest, int& reads) {
  if (const std::string* blob = shelf_.find(digest)) return blob;
  ++reads;
  TRY(unshelved_, cache_.blob(digest));
  shelf_.put(digest, unshelved_);
  return &unshelved_;
}

std::vector<Digest> BlobDesk::take_missing() {
  return std::exchange(missing_, {});
}

}  // namespace kiln
