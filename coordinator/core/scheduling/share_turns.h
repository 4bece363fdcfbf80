// ShareTurns: in which order the shares that wait for one server are served, so that they get equal
// amounts of its work, as start-time fair queueing has it (Goyal, Vin, Cheng 1996): each share has
// a clock that goes on by what it was served; the share whose clock is least is next; one that
// comes, or comes back, starts where the others are. O(log n) a step. Plain value; one thread.
#pragma once

#include <cstdint>
#include <set>
#include <tuple>
#include <unordered_map>

#include "coordinator/core/events.h"

namespace kiln {

class ShareTurns {
 public:
  using Turn = std::tuple<double, uint64_t, ShareId>;  // clock, since when it waits, who

  // Counted: a share waits until it left as often as it joined.
  void join(const ShareId& id);
  void leave(const ShareId& id);  // REQUIRES: it waits
  // It was served this much (milliseconds). REQUIRES: it waits.
  void charge(const ShareId& id, double work_ms);
  const std::set<Turn>& order() const { return order_; }  // of those who wait, the next one first

 private:
  struct Share {
    double clock_ms = 0;
    uint64_t since = 0;
    int joined = 0;
  };
  void forget_rested();

  std::unordered_map<ShareId, Share> shares_;
  std::set<Turn> order_;
  std::set<std::pair<double, ShareId>> resting_;  // do not wait, but are ahead of clock_ms_
  double clock_ms_ = 0;                           // of the share served last, before it was
  uint64_t arrivals_ = 0;
};

}  // namespace kiln
