#include "coordinator/storage/blob_memory_cache.h"

namespace kiln {

const std::string* BlobMemoryCache::find(const Digest& digest) {
  const auto found = by_digest_.find(digest);
  if (found == by_digest_.end()) return nullptr;
  const auto entry = found->second;
  if (entry->held_until_ms == 0) recent_.splice(recent_.begin(), recent_, entry);
  return &entry->bytes;
}

void BlobMemoryCache::put(const Digest& digest, std::string bytes) {
  if (by_digest_.contains(digest) || bytes.size() > max_bytes_) return;
  bytes_ += bytes.size();
  recent_.push_front({digest, std::move(bytes)});
  by_digest_[digest] = recent_.begin();
  make_room();
}

void BlobMemoryCache::hold(const Digest& digest, int64_t until_ms) {
  const auto found = by_digest_.find(digest);
  if (found == by_digest_.end()) return;
  const auto entry = found->second;
  if (entry->held_until_ms == 0) held_.splice(held_.end(), recent_, entry);
  entry->held_until_ms = until_ms;
}

void BlobMemoryCache::remove(const Digest& digest) {
  if (const auto found = by_digest_.find(digest); found != by_digest_.end()) erase(found->second);
}

void BlobMemoryCache::expire(int64_t now_ms) {
  while (!held_.empty() && held_.front().held_until_ms <= now_ms) {
    held_.front().held_until_ms = 0;
    recent_.splice(recent_.end(), held_, held_.begin());
  }
}

void BlobMemoryCache::make_room() {
  while (bytes_ > max_bytes_) {
    erase(recent_.size() > 1 || held_.empty() ? std::prev(recent_.end()) : held_.begin());
  }
}

void BlobMemoryCache::erase(Entries::iterator entry) {
  bytes_ -= entry->bytes.size();
  by_digest_.erase(entry->digest);
  Entries& list = entry->held_until_ms == 0 ? recent_ : held_;
  list.erase(entry);
}

}  // namespace kiln
