// Search spaces of workloads with symbols. A schedule is chosen as for the sizes that the symbols
// are measured at (plan/sizes.h), and taken over where the kernel can be written without knowing
// them: what sizes memory or registers has to be a constant. Pure functions.
#pragma once

#include <vector>

#include "compiler_core/plan/sizes.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

// The workload with its symbols at `sizes`: constants everywhere. kInvalidArgument: a size outside
// a symbol's range.
Result<Workload> sized_workload(const Workload& workload, std::span<const int64_t> sizes);

// Of `chosen`, made for sized_workload(workload, measured_sizes()), what can be written for
// `workload`, in the same order; never empty. kUnsupported for families that are written for
// constant sizes only.
Result<std::vector<Schedule>> symbolic_space(const Workload& workload, const Target& target,
                                             std::span<const Schedule> chosen);

}  // namespace kiln
