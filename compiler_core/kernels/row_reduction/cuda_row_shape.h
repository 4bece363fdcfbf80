// RowShape: the iteration space of a row reduction as rows of so many elements, and what of it a
// CUDA kernel reads. Schedules and code generation read the same answer. How many rows there are
// and how long they are may have symbols. A value.
#pragma once

#include "compiler_core/kernels/analysis/reduction_passes.h"

namespace kiln {

struct RowShape {
  Dim rows = 1;
  Dim row = 1;           // elements of one
  Dim columns = 1;       // the last axis
  bool several = false;  // elements along reduced axes but the last
  // REQUIRES: row is a constant.
  int64_t elements() const { return row.constant(); }

  // Inputs, and Views of inputs, that hold an element of their own for every element of the space:
  // what a kernel wants to read once. Others repeat along a row or are the same for every row.
  std::vector<NodeId> reads;
  int64_t read_bytes = 0;  // of an element of the space, over all reads
  // Up to here, vectors of a power of two lanes are aligned in everything that lies in memory as
  // the space does, and never straddle the end of the last axis where there are several.
  int64_t alignment = 1;
  // All of `reads` lie in memory as the space does: a row begins at the same place in each of them
  // and in every full output.
  bool in_step = true;

  // Whether vectors of so many lanes stand on aligned places, though rows begin between them: the
  // first and the last of a row are short. Else they begin with the row. Not written for symbols: a
  // buffer's end would have to be told.
  bool peels(int lanes) const {
    const bool constant = rows.is_constant() && row.is_constant();
    return lanes > alignment && constant && rows.constant() > 1 && !several && in_step;
  }
  // Vectors of a row, or the most that a row may need. REQUIRES: row is a constant.
  int64_t vectors(int lanes) const {
    return (elements() + (peels(lanes) ? lanes - alignment : 0) + lanes - 1) / lanes;
  }

  // REQUIRES: workload.h's rules of kRowReduction.
  static RowShape of(const Graph& graph);
};

}  // namespace kiln
