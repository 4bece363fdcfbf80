// The schedules of pointwise kernels. Values.
#pragma once

#include <vector>

#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

struct CpuPointwiseSchedule {
  int lanes = 16;         // elements a vector
  int unroll = 1;         // vectors an iteration
  int64_t block = 16384;  // elements a block of the grid, about
  int64_t columns = 0;    // most elements of the innermost axis a block takes; 0: no limit
  bool stream = false;    // outputs go past the caches where they are aligned

  // kInvalidArgument for another family's schedule, or a value that no kernel can be written for.
  static Result<CpuPointwiseSchedule> from(const Schedule& schedule);
  Schedule to_schedule() const;
};

// REQUIRES: workload.family is kPointwise, its sizes are constants.
std::vector<Schedule> cpu_pointwise_candidates(const Workload& workload, const Target& target);

// REQUIRES: check_printable(graph), the guarantees of kPointwise.
Result<Source> print_cpu_pointwise(const Graph& graph, const CpuPointwiseSchedule& schedule);

// "cpu.pointwise".
const KernelTemplate& cpu_pointwise();

}  // namespace kiln
