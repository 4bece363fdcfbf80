#include "compiler_core/plan/memory.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace kiln {
namespace {

int64_t aligned(int64_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

// First fit, one buffer after another in `order`.
ArenaPlan place_in(const std::vector<size_t>& order, const std::vector<Lifetime>& lifetimes) {
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

// Buffers that are best placed early: by size, so that small ones fill the gaps between large ones;
// by time, so that neighbours in time are neighbours in memory; by how long they are in the way.
using Before = bool (*)(const Lifetime&, const Lifetime&);
constexpr Before kOrders[] = {
    [](const Lifetime& a, const Lifetime& b) { return a.bytes > b.bytes; },
    [](const Lifetime& a, const Lifetime& b) { return a.first < b.first; },
    [](const Lifetime& a, const Lifetime& b) {
      return a.last - a.first != b.last - b.first ? a.last - a.first > b.last - b.first
                                                  : a.bytes > b.bytes;
    },
    [](const Lifetime& a, const Lifetime& b) { return a.last > b.last; },
};
constexpr size_t kMostForAllOrders = 10'000;  // buffers: placing takes more than linear time
constexpr size_t kMostForRepair = 1'000;
constexpr int kRepairs = 64;

}  // namespace

int64_t most_live_bytes(const std::vector<Lifetime>& lifetimes) {
  std::map<int, int64_t> change;  // at a launch, from the one before
  for (const Lifetime& life : lifetimes) {
    change[life.first] += aligned(life.bytes);
    change[life.last + 1] -= aligned(life.bytes);
  }
  int64_t now = 0, most = 0;
  for (const auto& [launch, bytes] : change) most = std::max(most, now += bytes);
  return most;
}

ArenaPlan plan_arena(const std::vector<Lifetime>& lifetimes) {
  const int64_t enough = most_live_bytes(lifetimes);
  std::vector<size_t> order(lifetimes.size()), best_order;
  ArenaPlan best;
  const auto keep_if_better = [&](ArenaPlan plan) {
    if (!best_order.empty() && plan.bytes >= best.bytes) return;
    best = std::move(plan);
    best_order = order;
  };
  for (const Before before : kOrders) {
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return before(lifetimes[a], lifetimes[b]); });
    keep_if_better(place_in(order, lifetimes));
    if (best.bytes == enough || lifetimes.size() > kMostForAllOrders) return best;
  }
  if (lifetimes.size() > kMostForRepair) return best;
  // What lies on top would have done better with a choice: it goes first.
  order = best_order;
  ArenaPlan plan = best;
  for (int round = 0; round < kRepairs && best.bytes > enough; ++round) {
    const auto on_top = std::find_if(order.begin(), order.end(), [&](size_t i) {
      return plan.offsets[i] + aligned(lifetimes[i].bytes) == plan.bytes;
    });
    std::rotate(order.begin(), on_top, on_top + 1);
    plan = place_in(order, lifetimes);
    keep_if_better(plan);
  }
  return best;
}

}  // namespace kiln
