// ColumnExtent: a column reduction as `groups` matrices of `rows` by `columns`, of which each
// column becomes one value: the last kept axis are the columns, the reduced axes the rows, all
// other axes the groups. For the schedules and the code of column reductions. A value.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler_core/plan/workload.h"

namespace kiln {

struct ColumnExtent {
  std::vector<int64_t> sizes;      // of the iteration space S
  std::vector<size_t> group_axes;  // batch and kept axes but the last
  std::vector<size_t> reduced_axes;
  int64_t groups = 1, rows = 1, columns = 1;

  // REQUIRES: a column reduction's space, its sizes are constants.
  explicit ColumnExtent(const ReductionSpace& space);
  bool is_reduced(size_t axis) const { return axis >= reduced_begin && axis < reduced_end; }

 private:
  size_t reduced_begin, reduced_end;
};

}  // namespace kiln
