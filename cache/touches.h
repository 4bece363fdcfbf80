// Touches: what was looked up since the last time this was written down, each once, with its latest
// time. Look-ups are many and the index has one writer, so uses reach the disk about once a minute.
// Thread-safe; bounded: what does not fit is forgotten, which costs the order of eviction some
// precision and nothing else.
#pragma once

#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/ledger.h"

namespace kiln {

class Touches {
 public:
  void add(const EntryId& id, int64_t used_ms) {
    const std::scoped_lock lock(mu_);
    if (const auto known = pending_.find(id.key); known != pending_.end())
      known->second.used_ms = used_ms;
    else if (pending_.size() < kMaxPending)
      pending_.emplace(id.key, Touch{id.kind, used_ms});
  }

  std::vector<std::pair<EntryId, int64_t>> take() {
    std::unordered_map<Digest, Touch> taken;
    {
      const std::scoped_lock lock(mu_);
      taken.swap(pending_);
    }
    std::vector<std::pair<EntryId, int64_t>> touches;
    touches.reserve(taken.size());
    for (const auto& [key, touch] : taken)
      touches.emplace_back(EntryId{touch.kind, key}, touch.used_ms);
    return touches;
  }

 private:
  static constexpr size_t kMaxPending = 200'000;
  struct Touch {
    EntryKind kind = EntryKind::kProgram;
    int64_t used_ms = 0;
  };

  std::mutex mu_;
  std::unordered_map<Digest, Touch> pending_;  // guarded by mu_; keys of all kinds are digests
};

}  // namespace kiln
