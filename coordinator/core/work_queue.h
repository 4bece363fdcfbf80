// WorkQueue: the kernel flights that have candidates to lease, in turn.
//
// Shares (users, or connections) get equal amounts of work, as start-time fair queueing has it
// (Goyal, Vin, Cheng 1996): each has a clock that goes on by what it was served; the share whose
// clock is least is next; one that comes, or comes back, starts where the others are. So one who
// warms a thousand programs does not keep another from its one. The kernels of a share take turns,
// so that a large one does not keep small ones waiting. Interactive demand goes before warm-up, but
// for one turn in `warm_up_turn`.
//
// A step costs O(log n) and looks at each target once, and at each flight that refuses. Plain
// value; one thread.
#pragma once

#include <array>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "coordinator/core/demand.h"

namespace kiln {

class WorkQueue {
 public:
  explicit WorkQueue(int warm_up_turn) : warm_up_turn_(warm_up_turn) {}

  // For these shares from now on, whatever it was for before. Its turn stays where it was with
  // shares that had it already.
  void add(const Target& target, const Demand& demand, const Digest& kernel);
  void remove(const Digest& kernel);
  bool empty() const { return member_of_.empty(); }
  bool has_work_for(const Target& device) const;
  std::vector<Target> targets() const;  // that somebody waits for

  // Offers the flights that `device` can run, in turn, until `serve` says how much work it took
  // (milliseconds of one worker); that share's clock goes on by it, and the flight goes to the end
  // of its ring. False when none took any. REQUIRES: `serve` does not change the queue.
  bool serve_next(const Target& device, const std::function<double(const Digest&)>& serve);

 private:
  using Turn = std::tuple<double, uint64_t, ShareId>;  // clock, since when it waits, who
  struct Share {
    double clock_ms = 0;
    uint64_t since = 0;
    std::set<std::pair<std::string, Priority>> lanes;  // where it has a ring
    Turn turn(const ShareId& id) const { return {clock_ms, since, id}; }
  };
  using Ring = std::list<Digest>;
  struct Lane {                     // of one target and priority
    std::map<ShareId, Ring> rings;  // none is empty
    std::set<Turn> order;           // of the shares in `rings`
  };
  struct TargetLanes {
    Target target;
    std::array<Lane, 2> of_priority;
  };
  struct Member {
    std::string target;
    std::map<ShareId, std::pair<Priority, Ring::iterator>> places;
  };
  void join(const std::string& target, const ShareId& id, Priority priority, const Digest& kernel,
            Member& member);
  void leave(const std::string& target, const ShareId& id, Priority priority, Ring::iterator place);
  bool serve_priority(const Target& device, Priority priority,
                      const std::function<double(const Digest&)>& serve);
  bool serve_ring(Lane& lane, const ShareId& id, const std::function<double(const Digest&)>& serve);
  void charge(const ShareId& id, double work_ms);
  bool waits(const Target& device, Priority priority) const;
  void forget_rested();

  const int warm_up_turn_;
  std::map<std::string, TargetLanes> lanes_;  // by Target::to_string and toolkit: its hard facts
  std::unordered_map<ShareId, Share> shares_;
  std::set<std::pair<double, ShareId>> resting_;  // without a ring, but ahead of clock_ms_
  std::unordered_map<Digest, Member> member_of_;
  double clock_ms_ = 0;  // of the share served last, before it was
  uint64_t arrivals_ = 0;
  int before_warm_up_ = 0;  // interactive turns since, while warm-up waited
};

}  // namespace kiln
