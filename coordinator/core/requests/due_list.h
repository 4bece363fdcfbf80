// DueList: keys ordered by the time at which something about them is due. An entry is a reminder:
// the caller that takes it checks whether there is still anything to do. Plain value.
#pragma once

#include <optional>
#include <set>
#include <utility>

#include "compiler_core/base/digest.h"

namespace kiln {

class DueList {
 public:
  void add(int64_t due_ms, const Digest& key) { entries_.emplace(due_ms, key); }

  // The key that is due for the longest, if any is; it is no longer here for that time.
  std::optional<Digest> take(int64_t now_ms) {
    if (entries_.empty() || entries_.begin()->first > now_ms) return std::nullopt;
    return entries_.extract(entries_.begin()).value().second;
  }

 private:
  std::set<std::pair<int64_t, Digest>> entries_;
};

}  // namespace kiln
