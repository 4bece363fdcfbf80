// A KernelCache's programs as people see them: lists, filtered and in parts, and single rows.
// Programs that are not everybody's are left out; totals count them, but for searches.
// Looking changes nothing: no entry counts as used. Plain values; CacheIndex reads (listing.cc).
#pragma once

#include <string>
#include <vector>

#include "compiler_core/base/digest.h"

namespace kiln {

struct ProgramQuery {
  enum class Order : uint8_t { kLatestUse, kOldestUse, kSize };
  Order order = Order::kLatestUse;
  // Matches the key's first digits, or text in the manifest (its case counts); empty: any.
  std::string text{};
  bool pinned_only = false;
  int64_t first = 0, limit = 50;
  // A search reads so many manifests at most, in that order.
  int64_t most_searched = 20'000;
};

struct ListedProgram {
  Digest key;
  std::string manifest;
  int64_t bytes = 0;    // of the manifest's row
  int64_t used_ms = 0;  // Unix time
  bool pinned = false;
};

struct ProgramList {
  std::vector<ListedProgram> programs;
  int64_t total = 0;        // that match, `first` and `limit` aside
  bool is_partial = false;  // there are more programs than were searched
};

}  // namespace kiln
