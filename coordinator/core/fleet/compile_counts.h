// CompileCounts: how many compiles each worker has reported. A worker reports a running count of
// its process, so every compile is counted once, even when the results of a revoked lease never
// arrive. Plain value; one thread.
//
//   A worker's first report says 0, because it has had no lease. A first report above 0 comes from
//   a worker that served an earlier incarnation of the coordinator: that work is not counted.
//   A count below the previous one comes from a new process under the same name whose first report
//   was missed.
#pragma once

#include <cstdint>
#include <map>

#include "coordinator/core/events.h"

namespace kiln {

class CompileCounts {
 public:
  // The compiles since `worker`'s last report, which says that there were `count` so far.
  int64_t newly(const WorkerId& worker, int64_t count);
  size_t size() const { return counts_.size(); }

  static constexpr size_t kMaxWorkers = 20'000;      // names; beyond, all are forgotten
  static constexpr int64_t kMaxAReport = 1'000'000;  // nobody does more in a few seconds

 private:
  std::map<WorkerId, int64_t> counts_;  // also of workers that went away and may come back
};

}  // namespace kiln
