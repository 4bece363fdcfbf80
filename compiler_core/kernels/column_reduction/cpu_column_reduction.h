// The schedules of column reductions (a kept axis innermost). Values.
#pragma once

#include <vector>

#include "compiler_core/kernels/analysis/reduction_passes.h"
#include "compiler_core/kernels/decisions.h"
#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

struct CpuColumnReductionSchedule {
  static constexpr std::string_view kTemplate = "cpu.column_reduction";

  int lanes = 8;    // elements a vector, along the kept axis
  int vectors = 1;  // adjacent vectors taken together down the columns
  int unroll = 1;   // rows an iteration
  ReductionPasses::Keep keep = ReductionPasses::Keep::kNothing;
  // 0: a block goes down all rows of its columns, for all loops. More: rows are cut into so many
  // pieces, each streams through its rows into partial results, which another phase combines.
  int64_t split = 0;

  static void fields(auto& f, auto& s) {
    f("lanes", s.lanes, kVectorLanes);
    f("vectors", s.vectors, between(1, 16));
    f("unroll", s.unroll, between(1, 16));
    f("keep", s.keep, between(0, 2));
    f("split", s.split, between(0, 4096));
  }
};

// REQUIRES: workload.family is kColumnReduction, its sizes are constants.
std::vector<Schedule> cpu_column_reduction_candidates(const Workload& workload,
                                                      const Target& target);

// REQUIRES: the guarantees of kColumnReduction.
Result<Source> print_cpu_column_reduction(const Graph& graph,
                                          const CpuColumnReductionSchedule& schedule);

// A column reduction as a matrix for each combination of the other kept axes: what both ways of
// printing it share.
struct Columns {
  const Graph& graph;
  CpuColumnReductionSchedule schedule;
  ReductionPasses passes;
  Shape sizes;                     // of S
  std::vector<size_t> group_axes;  // batch and kept axes but the last
  std::vector<size_t> reduced_axes;
  Dim groups = 1, rows = 1, columns = 1;

  Columns(const Graph& graph, const CpuColumnReductionSchedule& schedule);
  // Declares i{axis} for each of `axes`, outermost first, from the flat index named `flat`.
  std::string coordinates(const std::string& flat, const std::vector<size_t>& axes,
                          int indent) const;
};

// schedule.split > 0: the phases that stream through pieces of the rows (column_split.cc).
Source print_split_columns(const Columns& columns);

// "cpu.column_reduction".
const KernelTemplate& cpu_column_reduction();

}  // namespace kiln
