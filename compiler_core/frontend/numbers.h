// Numbers that a program computes while it runs: what aten.item takes out of a tensor, sizes of what is
// made of that, and arithmetic on these, which torch.export leaves in a graph as Python's own operators
// ("_operator.mul").
// Each is a scalar of the graph: i64 of integers, f64 of floats.
#pragma once

#include "compiler_core/frontend/exported_model.h"
#include "compiler_core/frontend/named_values.h"
#include "compiler_core/ir/builder.h"

namespace kiln {

// What `node` makes of numbers; kInvalidNode where the operator is not covered, or an operand is none
// that the graph has. REQUIRES: every symbol among its operands is a size of an input.
NodeId number_of(GraphBuilder& b, NamedValues& values, const ExportedNode& node);

}  // namespace kiln
