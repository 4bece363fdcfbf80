// A workload of each family whose sizes come at run time, as ordinary models make them: of any
// batch, and of any length. What docs/dynamic_shapes.md says is held to them, and a GPU runs them.
#pragma once

#include <vector>

#include "compiler_core/plan/workload.h"

namespace kiln::testing {

enum class OpenSize : uint8_t { kBatch, kLength };
const char* to_string(OpenSize open);

struct OpenWorkload {
  const char* name;
  Family family;
  OpenSize open;
  const char* graph;  // its text form
};

// Every family but kCustom at least once for each open size, unless nothing of it can be so long.
const std::vector<OpenWorkload>& open_workloads();

// As a plan would make it.
Result<Workload> workload_of(const OpenWorkload& open);

}  // namespace kiln::testing
