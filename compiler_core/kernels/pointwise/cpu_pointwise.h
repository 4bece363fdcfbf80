// The schedules of pointwise kernels. Values.
#pragma once

#include <vector>

#include "compiler_core/kernels/decisions.h"
#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

struct CpuPointwiseSchedule {
  static constexpr std::string_view kTemplate = "cpu.pointwise";

  int lanes = 8;          // elements a vector
  int unroll = 1;         // vectors an iteration
  int64_t block = 16384;  // elements a block of the grid, about
  int64_t columns = 0;    // most elements of the innermost axis a block takes; 0: no limit
  bool stream = false;    // outputs go past the caches where they are aligned

  static void fields(auto& f, auto& s) {
    f("lanes", s.lanes, kVectorLanes);
    f("unroll", s.unroll, between(1, 16));
    f("block", s.block, between(64, int64_t{1} << 30));
    f("columns", s.columns, between(0, int64_t{1} << 30));
    f("stream", s.stream);
  }
};

// REQUIRES: workload.family is kPointwise, its sizes are constants.
std::vector<Schedule> cpu_pointwise_candidates(const Workload& workload, const Target& target);

// REQUIRES: the guarantees of kPointwise.
Result<Source> print_cpu_pointwise(const Graph& graph, const CpuPointwiseSchedule& schedule);

// "cpu.pointwise".
const KernelTemplate& cpu_pointwise();

// One row of the outputs, whose elements are taken as those of a space that is a row thick.
struct CpuRowUpdateSchedule {
  static constexpr std::string_view kTemplate = "cpu.row_update";

  int lanes = 8;         // elements a vector
  int64_t block = 4096;  // elements a block of the grid, about

  static void fields(auto& f, auto& s) {
    f("lanes", s.lanes, kVectorLanes);
    f("block", s.block, between(64, int64_t{1} << 30));
  }
};

// REQUIRES: the guarantees of kRowUpdate.
Result<Source> print_cpu_row_update(const Graph& graph, const CpuRowUpdateSchedule& schedule);

// "cpu.row_update".
const KernelTemplate& cpu_row_update();

}  // namespace kiln
