#include "coordinator/storage/blob_sender.h"

#include <algorithm>
#include <utility>

namespace kiln {
namespace {

constexpr int64_t kPieceBytes = 128 << 10;
constexpr int64_t kBesideALink = 64;  // bytes
constexpr int kReadsAPiece = 16;
constexpr size_t kMaxOpenAPeer = 16;
constexpr size_t kMaxOpen = 20'000;
constexpr size_t kMaxDigests = 1 << 20;  // 32 MiB
constexpr int64_t kRefusedPatienceMs = 2'000;
constexpr int64_t kAwayMs = 100;       // how soon a store that is away is asked again
constexpr size_t kMostUnderWay = 256;  // questions to the store
constexpr size_t kAhead = 16;

// Whether a blob that could not be read with this code is lost. Other codes are a passing fault, of
// this process or of the store: the blob is intact.
bool is_lost(Code code) {
  return code == Code::kNotFound || code == Code::kCorruption;
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
  open_[peer].push_back(to.insert(to.end(), {peer, holder, std::move(request), &to}));
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
    if (stalled && held > 0) move(ready_, transfer);
    return;
  }
}

void BlobSender::move(Transfers& to, Transfers::iterator transfer) {
  to.splice(to.end(), *transfer->in, transfer);
  transfer->in = &to;
}

void BlobSender::end(Transfers::iterator transfer) {
  const auto held = held_.find(transfer->holder);
  for (Held* count : {&all_, &held->second}) {
    --count->transfers;
    count->digests -= transfer->request.digests.size();
  }
  if (held->second == Held{}) held_.erase(held);
  const auto open = open_.find(transfer->peer);
  std::erase(open->second, transfer);
  if (open->second.empty()) open_.erase(open);
  if (transfer->in == &waiting_) std::erase(transfer->fetch->waiting, transfer);
  transfer->in->erase(transfer);
}

void BlobSender::remove(const PeerId& peer) {
  const auto open = open_.find(peer);
  if (open == open_.end()) return;
  for (const Transfers::iterator transfer : std::vector(open->second)) end(transfer);
}

std::vector<PeerId> BlobSender::take_stalled(int64_t now_ms) {
  std::vector<PeerId> peers;
  while (!stalled_.empty() && now_ms - stalled_.front().stalled_ms >= kStalledMs) {
    peers.push_back(stalled_.front().peer);
    end(stalled_.begin());
  }
  return peers;
}

std::optional<BlobSender::Piece> BlobSender::next(
    int64_t now_ms, const std::function<bool(const PeerId&)>& can_take) {
  for (size_t i = ready_.size(); i > 0; --i) {
    const Transfers::iterator transfer = ready_.begin();
    ready_.splice(ready_.end(), ready_, transfer);  // its next turn is after everybody's
    if (now_ms < transfer->try_again_ms || !can_take(transfer->peer)) continue;
    Piece piece = advance(*transfer, now_ms);
    const BlobReply& reply = piece.reply;
    const bool has_news = !reply.chunks.empty() || !reply.missing.empty() || !reply.links.empty();
    if (piece.reply.last) {
      end(transfer);
    } else if (transfer->request.credit <= 0) {
      transfer->stalled_ms = now_ms;
      transfer->fetch.reset();  // a peer that gives no credit holds no memory
      move(stalled_, transfer);
    } else if (transfer->fetch && !transfer->fetch->answer) {
      transfer->fetch->waiting.push_back(transfer);
      move(waiting_, transfer);
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
  const auto go_on = [&transfer] {
    transfer.fetch.reset();
    transfer.refused_ms.reset();
    transfer.offset = 0;
    transfer.has_no_link = false;
    ++transfer.next;
  };
  int64_t room = std::min(kPieceBytes, transfer.request.credit);
  int reads = 0;
  while (transfer.next < digests.size() && room > 0 && reads < kReadsAPiece) {
    const Digest& digest = digests[transfer.next];
    const bool as_link = wanted(transfer, transfer.next).as_link;
    const Result<Opened> opened = open(transfer, now_ms, reads);
    if (!opened && as_link) {  // the bytes, then
      transfer.fetch.reset();
      transfer.has_no_link = true;
      continue;
    }
    if (!opened) {
      if (is_lost(opened.error().code)) {
        missing_.push_back(digest);
        reply.missing.push_back(digest);
        go_on();
        continue;
      }
      // A store that took its time to say so has tried for that long.
      if (!transfer.refused_ms) transfer.refused_ms = transfer.fetch->begun_ms;
      transfer.fetch.reset();
      if (now_ms - *transfer.refused_ms < kRefusedPatienceMs) {
        const bool away = opened.error().code == Code::kUnavailable;
        transfer.try_again_ms = now_ms + (away ? kAwayMs : 0);
        break;
      }
      reply.why = opened.error().message;
      reply.missing.insert(reply.missing.end(),
                           digests.begin() + static_cast<int64_t>(transfer.next), digests.end());
      transfer.next = digests.size();
      break;
    }
    const std::string* const blob = opened->text;
    if (blob == nullptr) break;
    if (opened->is_link) {
      room -= static_cast<int64_t>(blob->size()) + kBesideALink;
      reply.links.push_back({digest, *blob});
      ++links_;
      go_on();
      continue;
    }
    const auto total = static_cast<int64_t>(blob->size());
    const int64_t size = std::min(room, total - transfer.offset);
    reply.chunks.push_back(
        {digest, transfer.offset, total,
         blob->substr(static_cast<size_t>(transfer.offset), static_cast<size_t>(size))});
    room -= std::max<int64_t>(size, 1);  // so that empty ones do not fill a frame either
    transfer.request.credit -= size;
    transfer.offset += size;
    if (transfer.offset == total) go_on();
  }
  reply.last = transfer.next == digests.size();
  return piece;
}

BlobSender::Wanted BlobSender::wanted(const Transfer& transfer, size_t index) const {
  const bool has_no_link = index == transfer.next && (transfer.has_no_link || transfer.offset > 0);
  return {transfer.request.digests[index],
          hands_out_links_ && transfer.request.links_ok && !has_no_link};
}

Result<BlobSender::Opened> BlobSender::open(Transfer& transfer, int64_t now_ms, int& reads) {
  const Wanted next = wanted(transfer, transfer.next);
  if (const std::string* blob = memory_.find(next.digest)) {
    transfer.fetch.reset();
    return Opened{blob};
  }
  if (auto ahead = transfer.links_ahead.extract(transfer.next)) transfer.fetch = ahead.mapped();
  if (!transfer.fetch) {
    if (under_way_.size() >= kMostUnderWay && !under_way_.contains(next)) return Opened{};
    ++reads;
    transfer.fetch = fetch(next, now_ms);
  }
  const auto& answer = transfer.fetch->answer;
  if (!answer) {
    fetch_ahead(transfer, now_ms);
    return Opened{};
  }
  if (!*answer) return fail(answer->error());
  return Opened{&**answer, next.as_link};
}

// A store on this machine's disk answers before this returns.
std::shared_ptr<BlobSender::Fetch> BlobSender::fetch(const Wanted& wanted, int64_t now_ms) {
  const auto [found, is_new] = under_way_.try_emplace(wanted);
  if (!is_new) return found->second;
  auto begun = found->second = std::make_shared<Fetch>(Fetch{now_ms});
  auto then = on_loop<std::string>(
      loop_, [this, wanted](Result<std::string> answer) { brought(wanted, std::move(answer)); });
  if (wanted.as_link)
    store_.look_up_link(wanted.digest, std::move(then));
  else
    store_.look_up_blob(wanted.digest, std::move(then));
  return begun;
}

// One after another, a program's binaries would each cost a way to the store and back.
// Bytes come to memory, links to who asked.
void BlobSender::fetch_ahead(Transfer& transfer, int64_t now_ms) {
  const std::vector<Digest>& digests = transfer.request.digests;
  const size_t end = std::min(digests.size(), transfer.next + kAhead);
  for (size_t i = transfer.next + 1; i < end && under_way_.size() < kMostUnderWay; ++i)
    if (memory_.find(digests[i]) == nullptr && !transfer.links_ahead.contains(i)) {
      const Wanted later = wanted(transfer, i);
      auto fetched = fetch(later, now_ms);
      if (later.as_link) transfer.links_ahead.emplace(i, std::move(fetched));
    }
}

void BlobSender::brought(const Wanted& wanted, Result<std::string> answer) {
  const auto found = under_way_.find(wanted);
  const std::shared_ptr<Fetch> fetched = std::move(found->second);
  under_way_.erase(found);
  if (answer && !wanted.as_link) memory_.put(wanted.digest, *answer);
  fetched->answer = std::move(answer);
  for (const Transfers::iterator transfer : fetched->waiting) move(ready_, transfer);
  fetched->waiting.clear();
}

std::vector<Digest> BlobSender::take_missing() {
  return std::exchange(missing_, {});
}

}  // namespace kiln
