#include "compiler_core/plan/memory.h"

#include <algorithm>

namespace kiln {
namespace {

int64_t aligned(int64_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

}  // namespace

ArenaPlan plan_arena(const std::vector<Lifetime>& lifetimes) {
  // Large buffers first: small ones then fill the gaps.
  std::vector<size_t> order;
  for (size_t i = 0; i < lifetimes.size(); ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  ArenaPlan plan;
  plan.offsets.assign(lifetimes.size(), 0);
  std::vector<size_t> placed;  // ascending by offset
  for (size_t i : order) {
    const Lifetime& life = lifetimes[i];
    int64_t offset = 0;
    for (size_t other : placed) {
      const Lifetime& o = lifetimes[other];
      if (o.last < life.first || life.last < o.first) continue;
      if (offset + aligned(life.bytes) <= plan.offsets[other]) break;
      offset = std::max(offset, plan.offsets[other] + aligned(o.bytes));
    }
    plan.offsets[i] = offset;
    plan.bytes = std::max(plan.bytes, offset + aligned(life.bytes));
    const auto at = std::upper_bound(placed.begin(), placed.end(), offset,
                                     [&](int64_t o, size_t p) { return o < plan.offsets[p]; });
    placed.insert(at, i);
  }
  return plan;
}

}  // namespace kiln
