// How often a kernel computes its values. An expression is printed where it is read: a value that a
// Concat, a Pad, a View or a Gather reads at several places is printed once for each, so that
// x = concat(x, x), n times, would be 2^n texts of a graph of n nodes. Pure.
#pragma once

#include <cstdint>

#include "compiler_core/base/result.h"
#include "compiler_core/ir/graph.h"

namespace kiln {

// Values that the kernel of `graph` prints, each once for every place that it is read at; counting
// stops beyond `most`. Takes time and memory in proportion to the result.
int64_t printed_values(const Graph& graph, int64_t most);

// kUnsupported for a graph whose kernel would print far more values than it has nodes: neither
// this process nor a compiler can hold it.
Status check_repeated_values(const Graph& graph);

}  // namespace kiln
