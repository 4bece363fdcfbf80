#include "coordinator/core/fleet/compile_counts.h"

#include <algorithm>
#include <utility>

namespace kiln {

int64_t CompileCounts::newly(const WorkerId& worker, int64_t count) {
  if (counts_.size() >= kMaxWorkers && !counts_.contains(worker)) counts_.clear();
  const auto [entry, is_new] = counts_.try_emplace(worker, count);
  if (is_new) return 0;
  const int64_t before = std::exchange(entry->second, count);
  return std::clamp<int64_t>(count < before ? count : count - before, 0, kMaxAReport);
}

}  // namespace kiln
