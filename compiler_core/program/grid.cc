#include "compiler_core/program/grid.h"

#include "compiler_core/base/check.h"
#include "compiler_core/base/math.h"

namespace kiln {

Grid::Grid(const std::vector<GridAxis>& axes) : factor_(1) {
  for (const GridAxis& axis : axes) {
    CHECK(axis.step >= 1, "a block takes something");
    if (axis.size.is_constant() && axis.size.is_valid() && axis.size.constant() >= 0)
      factor_ = factor_ * Dim(ceil_div(axis.size.constant(), axis.step));
    else
      axes_.push_back(axis);
  }
}

Grid Grid::of_any(int64_t blocks, const Dim& size) {
  return Grid({GridAxis{blocks}, GridAxis{size, int64_t{1} << 40}});
}

Result<int64_t> Grid::blocks(std::span<const int64_t> symbols) const {
  TRY(int64_t product, factor_.evaluate({}));
  for (const GridAxis& axis : axes_) {
    TRY(const int64_t size, axis.size.evaluate(symbols));
    if (size < 0)
      return fail(Code::kInvalidArgument,
                  "a grid has an axis of size " + std::to_string(size) + " for these sizes");
    if (__builtin_mul_overflow(product, ceil_div(size, axis.step), &product))
      return fail(Code::kInvalidArgument, "a grid has more blocks than can be counted");
  }
  return product;
}

}  // namespace kiln
