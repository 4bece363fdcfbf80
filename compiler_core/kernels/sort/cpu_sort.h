// The schedules of sorting on the CPU. Values.
#pragma once

#include <vector>

#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

struct CpuSortSchedule {
  int digit = 8;      // bits of the key that one pass of the radix sort looks at: 8 or 11
  int64_t split = 1;  // pieces a row is sorted in, which are merged then: a power of two

  // kInvalidArgument for another family's schedule, or a value that no kernel can be written for.
  static Result<CpuSortSchedule> from(const Schedule& schedule);
  Schedule to_schedule() const;
};

// Bytes of what is moved about for one element of `dtype`: its key and its position.
int64_t sort_entry_bytes(DType dtype);

// REQUIRES: workload.family is kSort, its sizes are constants.
std::vector<Schedule> cpu_sort_candidates(const Workload& workload, const Target& target);

// REQUIRES: check_printable(graph), the guarantees of kSort.
Result<Source> print_cpu_sort(const Graph& graph, const CpuSortSchedule& schedule);

// "cpu.sort".
const KernelTemplate& cpu_sort();

}  // namespace kiln
