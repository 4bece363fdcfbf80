// Cuts one kernel out of a graph.
#pragma once

#include <vector>

#include "compiler_core/plan/stored_values.h"

namespace kiln {

struct KernelGraph {
  Graph graph;
  std::vector<NodeId>
      inputs;  // inputs[i]: the input or stored value that is the subgraph's input i
  std::vector<NodeId> computed;  // of the original graph, inside the kernel; ascending
};

// The subgraph that computes `outputs` from inputs and other stored values, brought into one
// iteration space: the operand's of its reductions, the product's of its matmul, the first output's
// otherwise. Outputs keep their order and elements, in the axes of that space.
Result<KernelGraph> cut_kernel(const Graph& graph, const StoredValues& values,
                               const std::vector<NodeId>& outputs);

}  // namespace kiln
