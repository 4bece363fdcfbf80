// Of the schedules that are chosen for the measured sizes, what CUDA kernels whose sizes have
// symbols are written for: their plain forms. Pure functions.
#pragma once

#include <vector>

#include "compiler_core/plan/workload.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

// In the order of `chosen`, without doubles; never empty. kUnsupported, saying why, for what is
// written for constant sizes only.
Result<std::vector<Schedule>> cuda_symbolic_schedules(const Workload& workload,
                                                      std::span<const Schedule> chosen);

}  // namespace kiln
