// The text of scales and zeros (plan/dequantised.h) in CUDA kernels. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "compiler_core/ir/graph.h"

namespace kiln {

// A parameter of a factor's function: `count` values, each of so many lines or of so much of the depth.
struct FactorParameter {
  std::string_view name;
  Dim count;
  int64_t unit = 1;
};

// A statement that declares the function `name`(line, depth) of a kernel: the f32 value of `factor`, a
// node of the shape of operand 0 or 1 of a product, at the first element that both parameters name.
// Parameters past their counts mean the last. kInvalidNode is 1 everywhere. Where there are batch axes,
// `batch` is declared before it.
std::string factor_function(const Graph& graph, std::string_view name, NodeId factor,
                            size_t operand, const FactorParameter& line,
                            const FactorParameter& depth, bool is_negated = false);

}  // namespace kiln
