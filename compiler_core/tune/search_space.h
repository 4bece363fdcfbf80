// SearchSpace: the legal schedules of a workload on a target, best guess first. The first one is
// what `default` mode compiles.
#pragma once

#include <vector>

#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

// Never empty for a workload whose family the target has; kUnsupported otherwise. Deterministic.
Result<std::vector<Schedule>> search_space(const Workload& workload, const Target& target);

}  // namespace kiln
