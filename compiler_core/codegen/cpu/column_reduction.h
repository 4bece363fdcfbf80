// Column reductions: an axis that is kept is innermost, so vectors stand across the columns and
// run down the rows: a sum over the batch, softmax over the first axis.
#pragma once

#include "compiler_core/codegen/lower.h"
#include "compiler_core/tune/cpu/space_column_reduction.h"

namespace kiln {

// REQUIRES: check_printable(graph), the guarantees of kColumnReduction.
Result<Source> lower_column_reduction(const Graph& graph, const ColumnReductionSchedule& schedule);

// A column reduction as a matrix for each combination of the other kept axes: what both ways of
// printing it share.
struct Columns {
  const Graph& graph;
  ColumnReductionSchedule schedule;
  ReductionPasses passes;
  Shape sizes;                     // of S
  std::vector<size_t> group_axes;  // batch and kept axes but the last
  std::vector<size_t> reduced_axes;
  Dim groups = 1, rows = 1, columns = 1;

  Columns(const Graph& graph, const ColumnReductionSchedule& schedule);
  // Declares i{axis} for each of `axes`, outermost first, from the flat index named `flat`.
  std::string coordinates(const std::string& flat, const std::vector<size_t>& axes,
                          int indent) const;
};

// schedule.split > 0: the phases that stream through pieces of the rows (column_split.cc).
Source print_split_columns(const Columns& columns);

}  // namespace kiln
