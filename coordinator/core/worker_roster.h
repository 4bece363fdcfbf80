// WorkerRoster: the workers there are, as their reports describe them. Plain value; one thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "coordinator/core/core.h"

namespace kiln {

struct Worker {
  Target target;
  std::string toolkit;
  int slots = 1;          // leases it wants at once
  bool draining = false;  // nothing new for it
  bool drain_ordered = false;
  int64_t report_ms = 0;  // its last report
  int64_t compiled = 0, measured = 0;
};

// "cuda:sm_90a (cuda-13)": the hard facts, for people.
std::string describe(const Target& target);

class WorkerRoster {
 public:
  Worker& report(int64_t now_ms, const WorkerId& id, const WorkerReport& report);
  Worker* find(const WorkerId& id);
  void remove(const WorkerId& id) { workers_.erase(id); }
  const std::map<WorkerId, Worker>& all() const { return workers_; }

  // Of workers that take new work for `target`: how many slots they have together, and whether
  // there is one besides `except`.
  int slots_for(const Target& target) const;
  bool serves(const Target& target, const WorkerId& except = {}) const;
  // How many workers that is.
  int count_for(const Target& target) const;
  std::vector<WorkerId> silent_since(int64_t time_ms) const;
  // A GPU's target that somebody named without having one ("cuda:sm_90a"), with the facts of a
  // worker that can run it, so that it has the keys of those who ask from such a machine: the first
  // by name with that very ISA, else the first by name. Any other target, or without such a worker:
  // as it is.
  Target resolve(const Target& target) const;
  // "cpu:x86-64-v4, cuda:sm_90a (cuda-13)", or "none": for people.
  std::string targets() const;

 private:
  std::map<WorkerId, Worker> workers_;
};

}  // namespace kiln
