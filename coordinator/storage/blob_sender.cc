#include "coordinator/storage/blob_sender.h"

#include <algorithm>
#include <utility>

namespace kiln {
namespace {

constexpr int64_t kPieceBytes = 128 << 10;
constexpr int kReadsAPiece = 16;
constexpr size_t kMaxOpenAPeer = 16;
constexpr size_t kMaxOpen = 20'000;
constexpr size_t kMaxDigests = 1 << 20;  // 32 MiB
constexpr int64_t kRefusedPatienceMs = 2'000;

// Whether a blob that could not be read with this code is lost. Other codes are a passing fault of
// this process: the blob is intact.
bool is_lost(Code code) {
  return code == Code::kNotFound || code == Code::kCorruption || code == Code::kUnavailable;
}

}  // namespace

// Whether, after this request, at least as much is left for others as its holder has, of transfers
// and of the digests that they keep.
bool BlobSender::has_room(const Held& held, size_t digests) const {
  return held.transfers + 1 + all_.transfers + 1 <= kMaxOpen &&
         held.digests + digests + all_.digests + digests <= kMaxDigests;
}

bool BlobSender::add(const PeerId& peer, const std::string& user, BlobRequest request,
                     int64_t now_ms) {
  const std::string& holder = user.empty() ? peer : user;
  const auto held = held_.find(holder);
  const auto open = open_.find(peer);
  if ((open != open_.end() && open->second.size() >= kMaxOpenAPeer) ||
      !has_room(held == held_.end() ? Held{} : held->second, request.digests.size())) {
    return false;
  }
  for (Held* count : {&all_, &held_[holder]}) {
    ++count->transfers;
    count->digests += request.digests.size();
  }
  request.credit = std::min(request.credit, kBlobWindowBytes);
  Transfers& to = request.credit > 0 ? ready_ : stalled_;
  open_[peer].push_back(to.insert(to.end(), {peer, holder, std::move(request)}));
  to.back().stalled_ms = now_ms;
  return true;
}

void BlobSender::add_credit(const PeerId& peer, const BlobCredit& credit) {
  const auto open = open_.find(peer);
  if (open == open_.end()) return;
  for (const Transfers::iterator transfer : open->second) {
    if (transfer->request.request != credit.request) continue;
    int64_t& held = transfer->request.credit;
    const bool stalled = held <= 0;
    held = std::min(held + std::min(credit.bytes, kBlobWindowBytes), kBlobWindowBytes);
    if (stalled && held > 0) ready_.splice(ready_.end(), stalled_, transfer);
    return;
  }
}

void BlobSender::end(Transfers& in, Transfers::iterator transfer) {
  const auto held = held_.find(transfer->holder);
  for (Held* count : {&all_, &held->second}) {
    --count->transfers;
    count->digests -= transfer->request.digests.size();
  }
  if (held->second == Held{}) held_.erase(held);
  const auto open = open_.find(transfer->peer);
  std::erase(open->second, transfer);
  if (open->second.empty()) open_.erase(open);
  in.erase(transfer);
}

void BlobSender::remove(const PeerId& peer) {
  const auto open = open_.find(peer);
  if (open == open_.end()) return;
  for (const Transfers::iterator transfer : std::vector(open->second))
    end(transfer->request.credit > 0 ? ready_ : stalled_, transfer);
}

std::vector<PeerId> BlobSender::take_stalled(int64_t now_ms) {
  std::vector<PeerId> peers;
  while (!stalled_.empty() && now_ms - stalled_.front().stalled_ms >= kStalledMs) {
    peers.push_back(stalled_.front().peer);
    end(stalled_, stalled_.begin());
  }
  return peers;
}

std::optional<BlobSender::Piece> BlobSender::next(
    int64_t now_ms, const std::function<bool(const PeerId&)>& can_take) {
  for (size_t i = ready_.size(); i > 0; --i) {
    const Transfers::iterator transfer = ready_.begin();
    ready_.splice(ready_.end(), ready_, transfer);  // its next turn is after everybody's
    if (!can_take(transfer->peer)) continue;
    Piece piece = advance(*transfer, now_ms);
    const bool has_news = !piece.reply.chunks.empty() || !piece.reply.missing.empty();
    if (piece.reply.last) {
      end(ready_, transfer);
    } else if (transfer->request.credit <= 0) {
      transfer->stalled_ms = now_ms;
      stalled_.splice(stalled_.end(), ready_, transfer);
    }
    if (piece.reply.last || has_news) return piece;
  }
  return std::nullopt;
}

BlobSender::Piece BlobSender::advance(Transfer& transfer, int64_t now_ms) {
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

Result<const std::string*> BlobSender::open(const Digest& digest, int& reads) {
  if (const std::string* blob = memory_.find(digest)) return blob;
  ++reads;
  TRY(uncached_, cache_.blob(digest));
  memory_.put(digest, uncached_);
  return &uncached_;
}

std::vector<Digest> BlobSender::take_missing() {
  return std::exchange(missing_, {});
}

}  // namespace kiln
