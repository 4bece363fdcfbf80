// WorkQueue: the tuning tasks that have candidates to lease, in the order of service.
//
// Tenants (users, or connections without one) get equal amounts of work (fair_queue.h), so a tenant
// that warms a thousand programs does not delay another's single one. Each class of devices is a
// server of its own, and so is its warm-up lane: work that a tenant did not get from one server,
// while it waited for another, gives it no claim here while others wait. The kernels of a tenant
// take turns, so a large one does not delay small ones, and one whose final is due is next; builders
// finish one before the next, since a device takes a kernel whole. Interactive work goes before
// warm-up, except for one turn in `warm_up_turn`.
//
// A step costs O(log n), looks at each target once and at each task that refuses. Plain value; one
// thread.
#pragma once

#include <array>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "coordinator/core/scheduling/fair_queue.h"
#include "coordinator/core/tuning/tenants.h"

namespace kiln {

class WorkQueue {
 public:
  // A queue serves devices, which run what they get, or builders, which make it (can_build()).
  enum class Servers : uint8_t { kDevices, kBuilders };
  explicit WorkQueue(int warm_up_turn, Servers servers = Servers::kDevices)
      : warm_up_turn_(warm_up_turn), kind_(servers) {}

  // Queues `kernel` for exactly these tenants, behind their others or as their next. It keeps its
  // turn with tenants that had it already.
  enum class Turn : uint8_t { kLast, kNext };
  void add(const Target& target, const Tenants& tenants, const Digest& kernel,
           Turn turn = Turn::kLast);
  void remove(const Digest& kernel);
  // Says how many candidates of a queued kernel wait; 0 removes it. `elsewhere`: those that wait in
  // another queue, are counted there, and may be had here too. `ms`: what they all take a server.
  void set_waiting(const Digest& kernel, int candidates, int elsewhere = 0, double ms = 0);
  int64_t waiting() const { return waiting_; }  // candidates of all tasks
  bool empty() const { return member_of_.empty(); }
  bool has_work_for(const Target& device) const;
  int kernels_waiting(const Target& target) const;
  double ms_waiting(const Target& target) const;                // of all its kernels
  std::map<std::string, Target> targets() const;                // those with queued work, by name
  std::vector<Digest> kernels_for(const Target& target) const;  // each once; O(their number)

  // Offers the tasks that `device` can run, in turn, until `serve` returns the work that it leased
  // (milliseconds of one worker). The tenant's clock advances by it and the task goes to the end of
  // its ring. False if `serve` refused all. REQUIRES: `serve` does not change the queue.
  bool serve_next(const Target& device, const std::function<double(const Digest&)>& serve);

 private:
  struct Ring {
    uint64_t since = 0;  // its number among arrivals
    std::list<Digest> kernels;
  };
  using Lane = std::map<TenantId, Ring>;  // for one target and priority; no ring is empty
  struct TargetLanes {
    Target target;
    int kernels = 0;
    double ms = 0;
    std::array<Lane, 2> of_priority;
  };
  struct Server {  // a class of devices
    Target device;
    std::array<FairQueue, 2> of_priority;  // tenants with a ring that it can run
    int before_warm_up = 0;  // interactive turns since the last warm-up turn that was due
  };
  struct Member {
    std::string target;
    int waiting = 0;  // candidates
    double ms = 0;    // that those take
    std::map<TenantId, std::pair<Priority, std::list<Digest>::iterator>> places;
  };
  void join(const std::string& target, const TenantId& id, Priority priority, const Digest& kernel,
            Turn turn, Member& member);
  void leave(const std::string& target, const TenantId& id, Priority priority,
             std::list<Digest>::iterator place);
  Server& server_of(const Target& device);
  bool serve_priority(Server& server, Priority priority,
                      const std::function<double(const Digest&)>& serve);
  bool waits(const Target& device, Priority priority) const;
  bool fits(const Target& server, const Target& target) const;
  double serve_ring(std::list<Digest>& ring, const std::function<double(const Digest&)>& serve);

  const int warm_up_turn_;
  const Servers kind_;
  std::map<std::string, TargetLanes> lanes_;  // by the target's hard facts
  std::map<std::string, Server> servers_;     // likewise; devices that asked while work waited
  std::unordered_map<Digest, Member> member_of_;
  uint64_t arrivals_ = 0;
  int64_t waiting_ = 0;  // sum of the members'
};

}  // namespace kiln
