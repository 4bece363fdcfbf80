// Shape: the sizes of a tensor, outermost first. A plain vector of Dims with the few questions
// every pass asks.
#pragma once

#include <string>
#include <vector>

#include "compiler_core/base/dim.h"

namespace kiln {

using Shape = std::vector<Dim>;

Dim numel(const Shape& shape);                            // the product; 1 for a scalar
std::vector<Dim> contiguous_strides(const Shape& shape);  // row-major, in elements
bool is_constant(const Shape& shape);
// REQUIRES: is_constant(shape).
std::vector<int64_t> constant_sizes(const Shape& shape);
std::string to_string(const Shape& shape);  // "[8,s0,24]"

}  // namespace kiln
