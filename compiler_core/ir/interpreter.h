// The oracle: a slow, obvious evaluation of a graph, one node at a time. Every compiled kernel is
// checked against it.
#pragma once

#include <span>
#include <vector>

#include "compiler_core/base/tensor.h"
#include "compiler_core/ir/graph.h"

namespace kiln {

enum class Precision {
  kDeclared,  // what op.h says: half types round at every node
  kHigh,      // f32 nodes are computed and accumulated in f64 and never rounded to f32; nodes of a
              // half type still round to it: the independent reference for verification
};

// Outputs in order. kInvalidArgument when inputs do not match in count, dtype or shape, or a symbol
// cannot be bound from them.
Result<std::vector<Tensor>> interpret(const Graph& graph, std::span<const Tensor* const> inputs,
                                      Precision precision = Precision::kDeclared);

// The values of the graph's symbols as the input sizes imply them.
Result<std::vector<int64_t>> bind_symbols(const Graph& graph,
                                          std::span<const Tensor* const> inputs);

}  // namespace kiln
