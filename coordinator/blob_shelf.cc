#include "coordinator/blob_shelf.h"

namespace kiln {

const std::string* BlobShelf::find(const Digest& digest) {
  const auto found = by_digest_.find(digest);
  if (found == by_digest_.end()) return nullptr;
  const auto entry = found->second;
  if (entry->held_until_ms == 0) shelf_.splice(shelf_.begin(), shelf_, entry);
  return &entry->bytes;
}

void BlobShelf::put(const Digest& digest, std::string bytes) {
  if (by_digest_.contains(digest) || bytes.size() > max_bytes_) return;
  bytes_ += bytes.size();
  shelf_.push_front({digest, std::move(bytes)});
  by_digest_[digest] = shelf_.begin();
  make_room();
}

void BlobShelf::hold(const Digest& digest, int64_t until_ms) {
  const auto found = by_digest_.find(digest);
  if (found == by_digest_.end()) return;
  const auto entry = found->second;
  if (entry->held_until_ms == 0) held_.splice(held_.end(), shelf_, entry);
  entry->held_until_ms = until_ms;
}

void BlobShelf::expire(int64_t now_ms) {
  while (!held_.empty() && held_.front().held_until_ms <= now_ms) {
    held_.front().held_until_ms = 0;
    shelf_.splice(shelf_.end(), held_, held_.begin());
  }
}

void BlobShelf::make_room() {
  while (bytes_ > max_bytes_) {
    erase(shelf_.size() > 1 || held_.empty() ? std::prev(shelf_.end()) : held_.begin());
  }
}

void BlobShelf::erase(Entries::iterator entry) {
  bytes_ -= entry->bytes.size();
  by_digest_.erase(entry->digest);
  Entries& list = entry->held_until_ms == 0 ? shelf_ : held_;
  list.erase(entry);
}

}  // namespace kiln
