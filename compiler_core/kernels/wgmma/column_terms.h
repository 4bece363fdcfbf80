// Values of an epilogue that depend on the column alone, such as a batch norm's mean, reciprocal root,
// factor and shift. A block computes them once, before its first tile; its rows read them from shared
// memory (device/wgmma_terms.cuh). Pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln {

// The values of `graph` that depend on the last axis of `product` alone and that arithmetic with more
// than columns reads, in the order of their nodes. Empty where a block would save nothing, since all are
// loads and conversions, and where one is of a dtype that f32 does not hold.
std::vector<NodeId> column_terms(const Graph& graph, NodeId product);

// Bytes of shared memory that hold `terms` of so many columns.
int64_t column_terms_bytes(std::span<const NodeId> terms, int64_t columns);

// Declares `column_terms(column)`, a ColumnTerms of two columns, from `column` on.
// REQUIRES: LANES is 2.
std::string print_column_terms(const Graph& graph, std::span<const NodeId> terms);

}  // namespace kiln
