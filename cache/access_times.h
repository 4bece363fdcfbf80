// AccessTimes: the entries looked up since the times were last written down, each once, with its
// latest time. Look-ups are many and the index has one writer, so uses reach the disk about once a
// minute. Thread-safe. Bounded: entries beyond the bound are forgotten, which costs the order of
// eviction some precision and nothing else.
#pragma once

#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/eviction_index.h"

namespace kiln {

class AccessTimes {
 public:
  void add(const EntryId& id, int64_t used_ms) {
    const std::scoped_lock lock(mu_);
    if (const auto known = pending_.find(id.key); known != pending_.end())
      known->second.used_ms = used_ms;
    else if (pending_.size() < kMaxPending)
      pending_.emplace(id.key, Access{id.kind, used_ms});
  }

  std::vector<std::pair<EntryId, int64_t>> take() {
    std::unordered_map<Digest, Access> taken;
    {
      const std::scoped_lock lock(mu_);
      taken.swap(pending_);
    }
    std::vector<std::pair<EntryId, int64_t>> times;
    times.reserve(taken.size());
    for (const auto& [key, access] : taken)
      times.emplace_back(EntryId{access.kind, key}, access.used_ms);
    return times;
  }

 private:
  static constexpr size_t kMaxPending = 200'000;
  struct Access {
    EntryKind kind = EntryKind::kProgram;
    int64_t used_ms = 0;
  };

  std::mutex mu_;
  std::unordered_map<Digest, Access> pending_;  // guarded by mu_; keys of all kinds are digests
};

}  // namespace kiln
