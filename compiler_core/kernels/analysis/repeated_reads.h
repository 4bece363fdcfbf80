// What a kernel reads again of its inputs, which an SM's cache serves as long as there is one. Pure.
#pragma once

#include <cstdint>

#include "compiler_core/ir/graph.h"

namespace kiln {

// Bytes that the kernel of `graph` would fetch beyond its inputs' own if an SM kept 16 KiB of what it
// read and no more: windows that overlap, values that are repeated along an axis, and the sectors of 32
// bytes around elements that do not follow each other in memory. Without the operands of products.
// Symbols at their measured sizes; an estimate.
int64_t bytes_read_again(const Graph& graph);

}  // namespace kiln
