// Where the vectors of a row begin and end. A row of peeled vectors (see RowShape::peels) begins
// `phase` elements past an aligned place; its vectors stand on aligned places, and the first and
// the last have dead lanes.
#pragma once

#include <string>

#include "compiler_core/kernels/row_reduction/cuda_row_loops.h"

namespace kiln {

// Declares `phase` of `row`; "" where vectors begin with their row.
std::string phase_text(const RowLayout& layout);

// The statements of vector `vector` (an expression) of a row, lane 0 of which is element `first`:
// declares `first`, then prints `body` for whole vectors and, where there may be others, once more
// for those, with `live` as each has it. `u`, a variable of the loop around it, counts a member's
// vectors, from 0 for those that may begin a row. `coordinates`: statements after `first`.
std::string vector_text(const RowLayout& layout, const std::string& vector,
                        const std::string& first, const std::string& coordinates,
                        const std::string& body, int indent);

}  // namespace kiln
