// Sizes with symbols, where a plan weighs one against another. What is right is decided by
// polynomials; what is better, by the sizes that the program was exported with.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln {

// The value at the symbols' hints; a symbol without one counts as 64, or what its range has
// nearest. INT64_MAX when it overflows.
int64_t size_at_hints(const Graph& graph, const Dim& size);

// The axes of a View that reads every element of its operand once, outermost first by the order in
// which they walk the operand; axes of size 1 are left out. Nothing when it is no such View.
std::optional<std::vector<int>> walk_order(const Graph& graph, const Node& view);

// number * unit, with the unit free of a common factor where that is easily seen: so that buffers
// that grow together have one unit.
struct FactoredSize {
  int64_t number = 1;
  Dim unit = 1;
};
FactoredSize factored(const Shape& shape);

}  // namespace kiln
