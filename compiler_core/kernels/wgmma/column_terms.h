// Values of an epilogue that depend on the column alone, such as what a batch norm of parameters
// subtracts, multiplies by and adds: a kernel computes them once, before its first tile, and its rows
// read them from shared memory (device/wgmma_terms.cuh). Pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln {

// The values of columns that `graph`, [..., columns], reads where it computes with `product`, in the
// order of their nodes. None where that would save nothing: no value of a column is more than a load
// and its conversion; or where one is not of floats that f32 holds.
std::vector<NodeId> column_terms(const Graph& graph, NodeId product);

// Bytes of shared memory that hold `terms` of so many columns.
int64_t column_terms_bytes(std::span<const NodeId> terms, int64_t columns);

// Declares `column_terms(column)`, a ColumnTerms of two columns, from `column` on.
// REQUIRES: LANES is 2.
std::string print_column_terms(const Graph& graph, std::span<const NodeId> terms);

}  // namespace kiln
