// The schedules of running sums on the CPU. Values.
#pragma once

#include <vector>

#include "compiler_core/kernels/decisions.h"
#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

struct CpuScanSchedule {
  static constexpr std::string_view kTemplate = "cpu.scan";

  int lanes = 8;      // elements a vector
  int unroll = 4;     // vectors side by side, where sums run down columns
  int64_t split = 1;  // pieces the summed axis is cut into, when lines don't fill the machine

  static void fields(auto& f, auto& s) {
    f("lanes", s.lanes, kVectorLanes);
    f("unroll", s.unroll, between(1, 16));
    f("split", s.split, between(1, 4096));
  }
};

// REQUIRES: workload.family is kScan, its sizes are constants.
std::vector<Schedule> cpu_scan_candidates(const Workload& workload, const Target& target);

// REQUIRES: the guarantees of kScan.
Result<Source> print_cpu_scan(const Graph& graph, const CpuScanSchedule& schedule);

// "cpu.scan".
const KernelTemplate& cpu_scan();

}  // namespace kiln
