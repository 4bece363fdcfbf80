// The schedules of running sums on the CPU. Values.
#pragma once

#include <vector>

#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

struct ScanSchedule {
  int lanes = 8;      // elements a vector
  int unroll = 4;     // vectors side by side, where sums run down columns
  int64_t split = 1;  // pieces the summed axis is cut into, when lines don't fill the machine

  // kInvalidArgument for another family's schedule, or a value that no kernel can be written for.
  static Result<ScanSchedule> from(const Schedule& schedule);
  Schedule to_schedule() const;
};

// REQUIRES: workload.family is kScan, its sizes are constants.
std::vector<Schedule> scan_space(const Workload& workload, const Target& target);

}  // namespace kiln
