// Where a row-major space is cut into axes. Spaces whose cuts go together can be split until one shape has
// them all. Pure functions.
#pragma once

#include <optional>
#include <set>

#include "compiler_core/ir/graph.h"

namespace kiln {

// Orders sizes and strides: the value of `size` when every symbol has a large value of its own.
int64_t magnitude(const Dim& size);

struct ByMagnitude {
  bool operator()(const Dim& a, const Dim& b) const {
    return std::pair(magnitude(a), a) < std::pair(magnitude(b), b);
  }
};
// The boundaries of axes: the number of elements inside each, the outermost included, and 1.
using AxisCuts = std::set<Dim, ByMagnitude>;

AxisCuts axis_cuts(const Shape& sizes);

// The axes between these boundaries; none when one does not divide the next.
std::optional<Shape> sizes_between(const AxisCuts& cuts);

}  // namespace kiln
