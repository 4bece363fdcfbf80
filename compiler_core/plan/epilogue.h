// How far a matmul's epilogue reaches.
#pragma once

#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln {

struct Epilogue {
  NodeId view = kInvalidNode;  // the rearrangement of the product that all of it stands in, if any
  NodeId end = kInvalidNode;   // the value that is stored; the product itself when nothing is fused
  std::vector<NodeId> nodes;   // the elementwise nodes between the product and `end`, with `end`
};

// From waist to waist: `end` is the last node, within reach, that every use of the product passes
// through by way of arithmetic alone. So a matmul kernel has one output, and values with several
// different uses are stored once. It stops before nodes that another matmul has claimed
// (`owner[node]` is not kInvalidNode): where two products meet, one reads the other's result.
Epilogue find_epilogue(const Graph& graph, const std::vector<std::vector<NodeId>>& users,
                       const std::vector<bool>& is_output, const std::vector<NodeId>& owner,
                       NodeId product);

}  // namespace kiln
