// WorkQueue: the kernel flights that have candidates to lease, in turn.
//
// Shares (users, or connections) get equal amounts of work (share_turns.h), so one who warms a
// thousand programs does not keep another from its one. Each class of devices is a server of its
// own, and so is its warm-up: what a share did not get of one, since it waited for another, it
// cannot claim of this one at once, while others wait. The kernels of a share take turns, so that a
// large one does not keep small ones waiting. Interactive demand goes before warm-up, but for one
// turn in `warm_up_turn`.
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

#include "coordinator/core/scheduling/share_turns.h"
#include "coordinator/core/tuning/demand.h"

namespace kiln {

class WorkQueue {
 public:
  explicit WorkQueue(int warm_up_turn) : warm_up_turn_(warm_up_turn) {}

  // For these shares from now on, whatever it was for before. Its turn stays where it was with
  // shares that had it already.
  void add(const Target& target, const Demand& demand, const Digest& kernel);
  void remove(const Digest& kernel);
  // So many candidates of it wait, which is here; none: it is removed.
  void set_waiting(const Digest& kernel, int candidates);
  int64_t waiting() const { return waiting_; }  // candidates, of all flights together
  bool empty() const { return member_of_.empty(); }
  bool has_work_for(const Target& device) const;
  std::map<std::string, Target> targets() const;                // that somebody waits for, by name
  std::vector<Digest> kernels_for(const Target& target) const;  // each once; O(their number)

  // Offers the flights that `device` can run, in turn, until `serve` says how much work it took
  // (milliseconds of one worker); that share's clock goes on by it, and the flight goes to the end
  // of its ring. False when none took any. REQUIRES: `serve` does not change the queue.
  bool serve_next(const Target& device, const std::function<double(const Digest&)>& serve);

 private:
  struct Ring {
    uint64_t since = 0;  // in arrivals
    std::list<Digest> kernels;
  };
  using Lane = std::map<ShareId, Ring>;  // of one target and priority; no ring is empty
  struct TargetLanes {
    Target target;
    std::array<Lane, 2> of_priority;
  };
  struct Server {  // a class of devices
    Target device;
    std::array<ShareTurns, 2> of_priority;  // of the shares with a ring that it can run
    int before_warm_up = 0;                 // interactive turns since, while warm-up waited
  };
  struct Member {
    std::string target;
    int waiting = 0;  // candidates
    std::map<ShareId, std::pair<Priority, std::list<Digest>::iterator>> places;
  };
  void join(const std::string& target, const ShareId& id, Priority priority, const Digest& kernel,
            Member& member);
  void leave(const std::string& target, const ShareId& id, Priority priority,
             std::list<Digest>::iterator place);
  Server& server_of(const Target& device);
  bool serve_priority(Server& server, Priority priority,
                      const std::function<double(const Digest&)>& serve);
  bool waits(const Target& device, Priority priority) const;

  const int warm_up_turn_;
  std::map<std::string, TargetLanes> lanes_;  // by Target::to_string and toolkit: its hard facts
  std::map<std::string, Server> servers_;     // likewise; those that came for work while some waits
  std::unordered_map<Digest, Member> member_of_;
  uint64_t arrivals_ = 0;
  int64_t waiting_ = 0;  // sum of the members'
};

}  // namespace kiln
