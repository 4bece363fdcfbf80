// The schedules of row reductions (the reduced axes innermost). Values.
#pragma once

#include <vector>

#include "compiler_core/kernels/analysis/reduction_passes.h"
#include "compiler_core/kernels/decisions.h"
#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

struct CpuRowReductionSchedule {
  static constexpr std::string_view kTemplate = "cpu.row_reduction";

  int lanes = 8;     // elements a vector
  int unroll = 1;    // vectors an iteration, each with accumulators of its own
  int64_t rows = 1;  // rows a block of the grid
  ReductionPasses::Keep keep = ReductionPasses::Keep::kNothing;
  bool stream = false;  // full outputs go past the caches where they are aligned
  int64_t split = 1;    // pieces a row is cut into, when rows alone don't fill the machine

  static void fields(auto& f, auto& s) {
    f("lanes", s.lanes, kVectorLanes);
    f("unroll", s.unroll, between(1, 16));
    f("rows", s.rows, between(1, int64_t{1} << 30));
    f("keep", s.keep, between(0, 2));
    f("stream", s.stream);
    f("split", s.split, between(1, 4096));
  }
};

// REQUIRES: workload.family is kRowReduction, its sizes are constants.
std::vector<Schedule> cpu_row_reduction_candidates(const Workload& workload, const Target& target);

// REQUIRES: the guarantees of kRowReduction.
Result<Source> print_cpu_row_reduction(const Graph& graph, const CpuRowReductionSchedule& schedule);

// "cpu.row_reduction".
const KernelTemplate& cpu_row_reduction();

}  // namespace kiln
