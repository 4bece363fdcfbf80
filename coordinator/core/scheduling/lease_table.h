// LeaseTable: the open leases. A lease is a time-bounded assignment of candidates of one tuning
// task to one worker. Its id is never used again. Its epoch is the task's when it was opened, and a
// task gets a new epoch whenever work is taken back. A result counts only while its lease is open
// under that epoch, so a worker that lost its lease changes nothing. Every query uses an index.
// Plain value; one thread.
#pragma once

#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include "coordinator/core/events.h"

namespace kiln {

struct Lease {
  uint64_t id = 0, epoch = 0;
  Digest kernel;
  WorkerId worker;
  Job::Kind kind = Job::Kind::kScreen;
  std::vector<int> candidates;   // as leased
  std::vector<int> outstanding;  // without a result yet
  int done = 0;                  // as the worker reported
  bool seen = false;             // the worker knows of it: the job need not be sent again
  bool hedged = false;           // a second worker has its outstanding candidates too
  int64_t opened_ms = 0;
  int64_t progress_ms = 0;  // see progressed()
};

class LeaseTable {
 public:
  explicit LeaseTable(uint64_t first_id) : next_id_(first_id), next_epoch_(first_id) {}

  Lease& open(int64_t now_ms, Lease lease);  // fills in the id and the times
  // Greater than every earlier epoch, also those of other kernels.
  uint64_t new_epoch() { return next_epoch_++; }
  Lease* find(uint64_t id);
  void close(uint64_t id);
  void progressed(int64_t now_ms, Lease& lease);

  const std::map<uint64_t, Lease>& all() const { return leases_; }
  // Ids, oldest first.
  std::vector<uint64_t> of_worker(const WorkerId& worker) const;
  std::vector<uint64_t> of_kernel(const Digest& kernel) const;
  std::vector<uint64_t> without_progress_since(int64_t time_ms) const;
  int count(const WorkerId& worker) const;         // that take a slot: all but builds
  int count_builds(const WorkerId& worker) const;  // of kBuild
  int count(const Digest& kernel) const;
  int count_builds(const Digest& kernel) const;

 private:
  uint64_t next_id_, next_epoch_;
  std::map<uint64_t, Lease> leases_;
  std::unordered_map<WorkerId, std::set<uint64_t>> held_;    // none is empty
  std::unordered_map<WorkerId, std::set<uint64_t>> builds_;  // of those; none is empty
  std::unordered_map<Digest, std::set<uint64_t>> of_kernel_, builds_of_kernel_;  // none is empty
  std::set<std::pair<int64_t, uint64_t>> by_progress_;
};

}  // namespace kiln
