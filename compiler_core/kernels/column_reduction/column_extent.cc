#include "compiler_core/kernels/column_reduction/column_extent.h"

namespace kiln {

ColumnExtent::ColumnExtent(const ReductionSpace& space)
    : sizes(constant_sizes(space.shape)),
      columns(sizes.back()),
      reduced_begin(static_cast<size_t>(space.reduced_begin)),
      reduced_end(static_cast<size_t>(space.reduced_end)) {
  for (size_t k = 0; k + 1 < sizes.size(); ++k) {
    (is_reduced(k) ? reduced_axes : group_axes).push_back(k);
    (is_reduced(k) ? rows : groups) *= sizes[k];
  }
}

}  // namespace kiln
