#include "compiler_core/plan/memory.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "compiler_core/base/math.h"

namespace kiln {
namespace {

int64_t aligned(int64_t bytes) {
  return round_up(bytes, kBufferAlignment);
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

// The free pieces of an arena that grows; no two touch.
class FreePieces {
 public:
  // The smallest piece that takes `size` bytes; the arena grows where none does.
  int64_t take(int64_t size) {
    const auto fit = by_size_.lower_bound({size, 0});
    if (fit == by_size_.end()) return grow(size);
    const auto [offset, found] = remove(by_offset_.find(fit->second));
    if (found > size) add(offset + size, found - size);
    return offset;
  }

  void give_back(int64_t offset, int64_t size) {
    auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.end() && next->first == offset + size) size += remove(next++).second;
    if (next != by_offset_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == offset) {
        offset = before->first;
        size += remove(before).second;
      }
    }
    add(offset, size);
  }

  int64_t end() const { return end_; }

 private:
  using Pieces = std::map<int64_t, int64_t>;  // size by offset

  int64_t grow(int64_t size) {
    int64_t offset = end_;
    if (!by_offset_.empty()) {
      const auto last = std::prev(by_offset_.end());
      if (last->first + last->second == end_) offset = remove(last).first;
    }
    end_ = offset + size;
    return offset;
  }
  void add(int64_t offset, int64_t size) {
    by_offset_.emplace(offset, size);
    by_size_.emplace(size, offset);
  }
  std::pair<int64_t, int64_t> remove(Pieces::iterator at) {
    const std::pair<int64_t, int64_t> piece = *at;
    by_size_.erase({piece.second, piece.first});
    by_offset_.erase(at);
    return piece;
  }

  Pieces by_offset_;
  std::set<std::pair<int64_t, int64_t>> by_size_;  // the same, as (size, offset)
  int64_t end_ = 0;
};

// Places buffers launch by launch, each in the free block that fits best: takes little more than
// linear time.
ArenaPlan place_in_time(const std::vector<Lifetime>& lifetimes) {
  ArenaPlan plan;
  plan.offsets.assign(lifetimes.size(), 0);
  std::vector<size_t> order(lifetimes.size()), ends(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lifetimes[a].first < lifetimes[b].first; });
  std::iota(ends.begin(), ends.end(), size_t{0});
  std::stable_sort(ends.begin(), ends.end(),
                   [&](size_t a, size_t b) { return lifetimes[a].last < lifetimes[b].last; });
  FreePieces pieces;
  auto done = ends.begin();
  for (const size_t i : order) {
    // A buffer that ended before this one began earlier too, so it has its offset.
    for (; lifetimes[*done].last < lifetimes[i].first; ++done)
      if (lifetimes[*done].bytes > 0)
        pieces.give_back(plan.offsets[*done], aligned(lifetimes[*done].bytes));
    if (lifetimes[i].bytes > 0) plan.offsets[i] = pieces.take(aligned(lifetimes[i].bytes));
  }
  plan.bytes = pieces.end();
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
constexpr size_t kMostForOrders = 4'000;  // buffers: each order takes more than linear time
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
  if (lifetimes.size() > kMostForOrders) return place_in_time(lifetimes);
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
    if (best.bytes == enough) return best;
  }
  if (lifetimes.size() > kMostForRepair) return best;
  // Repair: the buffer on top of the arena is placed first in the next round.
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
