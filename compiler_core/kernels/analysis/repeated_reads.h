// How much a kernel depends on the cache of an SM: what it reads of its inputs more than once. Pure.
#pragma once

#include <cstdint>

#include "compiler_core/ir/graph.h"

namespace kiln {

// Bytes that the kernel of `graph` would fetch beyond its inputs' own if an SM kept 16 KiB of what it
// read and no more: windows that overlap, values that are repeated along an axis, and the sectors of 32
// bytes around elements that do not follow each other in memory. The operands of products are left
// out. An estimate, with symbols at their measured sizes.
int64_t bytes_read_again(const Graph& graph);

}  // namespace kiln
