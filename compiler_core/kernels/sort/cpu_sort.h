// The schedules of sorting on the CPU. Values.
#pragma once

#include <vector>

#include "compiler_core/kernels/decisions.h"
#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

struct CpuSortSchedule {
  static constexpr std::string_view kTemplate = "cpu.sort";
  static constexpr int64_t kMostSplit = 256;

  int digit = 8;      // bits of the key that one pass of the radix sort looks at: 8 or 11
  int64_t split = 1;  // pieces a row is sorted in, which are merged then: a power of two

  static void fields(auto& f, auto& s) {
    f("digit", s.digit, between(8, 11));
    f("split", s.split, powers_of_two(1, kMostSplit));
  }
  bool go_together() const { return digit == 8 || digit == 11; }
};

// Bytes of what is moved about for one element of `dtype`: its key and its position.
int64_t sort_entry_bytes(DType dtype);

// REQUIRES: workload.family is kSort, its sizes are constants.
std::vector<Schedule> cpu_sort_candidates(const Workload& workload, const Target& target);

// REQUIRES: the guarantees of kSort.
Result<Source> print_cpu_sort(const Graph& graph, const CpuSortSchedule& schedule);

// "cpu.sort".
const KernelTemplate& cpu_sort();

}  // namespace kiln
