// Sizes with symbols, where a plan weighs one against another. What is right is decided by
// polynomials; what is better, by the sizes that the program was exported with.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln {

// The sizes at which plans are weighed and kernels tuned and timed: each symbol's hint, or, without
// one, the middle of its range, but at most 1024; within its range, and not below 2 where the range
// allows it.
std::vector<int64_t> measured_sizes(std::span<const Symbol> symbols);

// The value at the measured sizes. INT64_MAX when it overflows.
int64_t size_at_hints(const Graph& graph, const Dim& size);

// The axes of a View that reads every element of its operand once, in the operand's order,
// outermost first; axes of size 1 are left out. Empty when it is no such View.
std::optional<std::vector<int>> walk_order(const Graph& graph, const Node& view);

// number * unit, with the unit free of a common factor where that is easily seen: so that buffers
// that grow together have one unit.
struct FactoredSize {
  int64_t number = 1;
  Dim unit = 1;
};
FactoredSize factored(const Shape& shape);

}  // namespace kiln
