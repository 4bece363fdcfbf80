// One element of every row of a value, picked by an index (the target's entry in a log-softmax), is
// computed from the same element of what the value is computed from: so that the value is never
// stored, and the row kernel beneath it computes the entry too.
#pragma once

#include "compiler_core/ir/graph.h"

namespace kiln {

// Gathers from a flattened [rows, columns] value at row * columns + column move below its
// arithmetic, where that has the result of a reduction of each row in it. A column outside
// [0, columns) is the caller's error, as every index out of range.
Result<Graph> sink_gathers(const Graph& graph);

}  // namespace kiln
