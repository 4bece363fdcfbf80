// WrittenRow: the one row of its outputs that a row update (plan/row_update.h) writes, in generated code. Where
// the index names no row, the nearest is written as it was: is_there is false of it. One printer's.
#pragma once

#include <string>
#include <vector>

#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/plan/row_update.h"
#include "compiler_core/program/artifact.h"

namespace kiln {

class WrittenRow {
 public:
  // REQUIRES: find_row_update(graph), which outlives this.
  explicit WrittenRow(const Graph& graph) : graph_(graph), update_(*find_row_update(graph)) {}

  // The outputs' shape without the rows' axis: what there is to walk.
  Shape other_axes() const;
  // Completes a place on the other axes. The first call declares, by `printer`, which row it is.
  void put(std::vector<Index>& place, ExpressionPrinter& printer);
  std::vector<KeptOutput> kept_outputs() const;

 private:
  const Shape& shape() const { return graph_.node(graph_.outputs()[0]).shape; }

  const Graph& graph_;
  const RowUpdate update_;
  std::string row_;  // the variable; empty: not declared yet
};

}  // namespace kiln
