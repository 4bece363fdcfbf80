// Rows that no vector divides, taken several at a time: [rows, columns] is
// [rows / fold, fold * columns] where it lies, whose rows a vector may divide. A sum over its rows
// is `fold` partial sums of every column, next to each other as rows of [fold, columns]. Pure
// functions.
#pragma once

#include <optional>

#include "compiler_core/kernels/analysis/reduction_passes.h"
#include "compiler_core/kernels/column_reduction/column_extent.h"

namespace kiln {

// How many rows together are whole vectors of `lanes` (a power of two); 1 when one row is.
int64_t column_fold(int64_t columns, int lanes);

// The reductions of `graph` over folded rows: the same inputs (those of the full shape folded), and
// for outputs the reductions, in the order of passes.passes[0].reduces. The last rows % fold rows
// are not among them. Nothing where a value knows which column it is in, or where full outputs or
// another loop need more than the reductions.
// REQUIRES: `passes` and `extent` are those of `graph`, a column reduction of constant sizes.
std::optional<Graph> fold_columns(const Graph& graph, const ReductionPasses& passes,
                                  const ColumnExtent& extent, int64_t fold);

}  // namespace kiln
