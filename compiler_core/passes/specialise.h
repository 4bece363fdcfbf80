// One graph for some of the sizes that another serves: symbols with narrower ranges, or constants
// in their place. It is a graph like any other, with a digest of its own, so that it is tuned,
// cached and served beside the one it came from.
#pragma once

#include <span>

#include "compiler_core/ir/graph.h"

namespace kiln {

// `symbols[i]` says what symbol i of `graph` becomes: a range inside its own with the hint to tune
// at, or a constant where the range has one value. The symbols that are left keep their order.
// kInvalidArgument: not one for each symbol, or a range that is empty or reaches outside.
Result<Graph> specialise(const Graph& graph, std::span<const Symbol> symbols);

// Cuts a range between the sizes that are hinted, at their geometric means, into one range for each
// with the hint inside it. Hints are sorted and those given twice dropped; without any, the whole
// range. kInvalidArgument for a hint outside the range.
Result<std::vector<Symbol>> cut_range(const Symbol& symbol, std::vector<int64_t> hints);

}  // namespace kiln
