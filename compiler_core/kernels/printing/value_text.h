// How single values are spelled in generated code, in the vocabulary that both targets have: types,
// literals, operators, conversions. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "compiler_core/ir/graph.h"

namespace kiln {

// "vf32" and so on: the register type of a dtype; "float", "bf16" and so on: its memory type.
std::string_view register_type(DType dtype);
std::string_view memory_type(DType dtype);

// C text of a constant, as an element of its register type.
std::string literal(DType dtype, const ConstantAttr& value);

// The operator of a binary op that C writes infix and that needs no care; "" for the others.
std::string_view infix(Op op);

// The function that brings i32 lanes back into the range of a smaller integer type; "" for others.
std::string_view wrapping(DType dtype);

// `expression`, of a dtype's register type, brought back into the range of the dtype. `plain_nans`:
// no NaN has a payload that rounding to bf16 could carry away (precision.h).
std::string narrowed(DType dtype, bool plain_nans, const std::string& expression);

// Op cast of the register `x`.
std::string cast_expression(DType from, DType to, bool plain_nans, const std::string& x);

}  // namespace kiln
