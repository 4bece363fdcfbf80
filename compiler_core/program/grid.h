// Grid: how many blocks a phase is launched with: the product over axes of ceil(size / step), so
// that sizes with symbols are divided into blocks at run time. A value; constant axes fold into one
// factor, so that equal grids of constants compare equal.
#pragma once

#include <vector>

#include "compiler_core/base/dim.h"

namespace kiln {

struct GridAxis {
  Dim size;          // not negative for the symbols' values
  int64_t step = 1;  // elements a block takes; at least 1
  bool operator==(const GridAxis&) const = default;
};

class Grid {
 public:
  Grid() = default;                                      // no blocks
  Grid(int64_t blocks) : factor_(blocks) {}              // NOLINT: a number is a grid
  Grid(const Dim& blocks) : Grid({GridAxis{blocks}}) {}  // NOLINT: and so is a size
  // REQUIRES: every step is at least 1.
  explicit Grid(const std::vector<GridAxis>& axes);

  // So many blocks whatever the sizes; none where `size`, below 2^40, is 0.
  static Grid of_any(int64_t blocks, const Dim& size);

  // False also when the product of constant axes overflows: then blocks() says so.
  bool is_constant() const { return axes_.empty() && factor_.is_valid(); }
  // REQUIRES: is_constant().
  int64_t constant() const { return factor_.constant(); }
  const Dim& factor() const { return factor_; }                // of the constant axes
  const std::vector<GridAxis>& axes() const { return axes_; }  // those with symbols, in order

  // For given values of the symbols. kInvalidArgument when one is unbound, a size is negative, or
  // the product overflows. Allocates nothing when it succeeds.
  Result<int64_t> blocks(std::span<const int64_t> symbols) const;

  bool operator==(const Grid&) const = default;

 private:
  Dim factor_;  // a constant
  std::vector<GridAxis> axes_;
};

}  // namespace kiln
