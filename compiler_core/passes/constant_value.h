// Constants seen through the Views that repeat them, and arithmetic on them.
#pragma once

#include <optional>
#include <span>

#include "compiler_core/ir/builder.h"

namespace kiln {

// The value every element of `x` has: `x` is a Constant, or a View of one.
std::optional<ConstantAttr> constant_value(const GraphBuilder& builder, NodeId x);
std::optional<ConstantAttr> constant_value(const Graph& graph, NodeId x);

// A constant of `shape`: the scalar itself, or a View that repeats it.
NodeId filled(GraphBuilder& builder, DType dtype, ConstantAttr value, Shape shape);

// The result of the elementwise `op` on constant operands of these dtypes, as the interpreter
// computes it; empty where the value is unspecified (integer division by zero, a float out of an
// integer's range).
std::optional<ConstantAttr> fold_constant(Op op, DType dtype, std::span<const DType> dtypes,
                                          std::span<const ConstantAttr> operands);

// Whether a cast of `value` to the integer `dtype` is specified.
bool fits_integer(DType dtype, double value);

}  // namespace kiln
