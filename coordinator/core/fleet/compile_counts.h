// CompileCounts: how many compiles each worker said it did, as a running count of its process, so
// that each is counted once though the results of a lease that was taken back never come. Plain
// value; one thread.
//
//   a worker's first report says 0: it has no lease before. A first report that says more is of a
//   worker that was there before this life of the coordinator: what it did then is not counted.
//   Less than before: another process under the same name, whose first report was missed.
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
