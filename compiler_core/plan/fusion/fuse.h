// From materialised values to kernels: which values one kernel computes together, and that kernel's
// graph.
#pragma once

#include <vector>

#include "compiler_core/plan/fusion/materialised_values.h"

namespace kiln {

using KernelOutputs = std::vector<NodeId>;  // what one kernel stores, ascending

// Joins kernels, at first one for each materialised value: a producer with its consumer, and
// siblings that read the same buffer, where one iteration space holds both. classify() has the last
// word on every join. Values that are needed only inside a joined kernel stop being materialised.
// Then products of one first operand, as far as `rules` have it.
std::vector<KernelOutputs> fuse_kernels(const Graph& graph, const PartitionRules& rules,
                                        MaterialisedValues& values);

// Whether the kernel reads a View of a View, as arises where values of one size but different shapes
// come together, and has so many elements that an index's divisions cost more than a launch.
bool costs_divisions(const Graph& kernel);

struct KernelGraph {
  Graph graph;
  std::vector<NodeId> inputs;    // the input or materialised value that each input of `graph` is
  std::vector<NodeId> computed;  // of the original graph, inside the kernel; ascending
};

// Extracts the kernel that computes `outputs` from inputs and other materialised values, brought
// into one iteration space: the operand's of its reductions, its axes split as finely as any value
// that is walked in its order has them; the product's of its matmul; the first output's otherwise.
// Outputs keep their order and elements, in the axes of that space.
Result<KernelGraph> extract_kernel(const Graph& graph, const MaterialisedValues& values,
                                   const std::vector<NodeId>& outputs);

}  // namespace kiln
