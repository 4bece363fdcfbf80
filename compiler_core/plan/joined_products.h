// Joined products: matmuls of one first operand, each with a second operand of its own, in one kernel:
// queries, keys and values, or a gate and what it scales. The first operand is read once, and one
// launch fills a device that none of the products would fill. Pure functions.
#pragma once

#include <optional>
#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln {

// What one output is computed from: products of its shape, ascending.
struct JoinedOutput {
  NodeId output = kInvalidNode;
  std::vector<NodeId> products;
};

struct JoinedProducts {
  NodeId first_operand = kInvalidNode;  // of all of them: [m, k]
  std::vector<JoinedOutput> outputs;    // in the order of the graph's
};

// How far apart the lines of an operand of a matmul of two axes lie, the rows of the first one and the columns
// of the second, which are halves of an input, contiguous along the depth, and begin at multiples of 16 bytes.
// nullopt: they do not.
std::optional<int64_t> line_pitch(const Graph& graph, NodeId operand, bool rows);

// Products of a kernel, and of one output: their sums stand side by side in registers.
inline constexpr int kMostJoinedProducts = 8, kMostProductsOfOutput = 2;

// nullopt: the graph has fewer than two matmuls, or not one first operand.
std::optional<JoinedProducts> find_joined_products(const Graph& graph);

// Whether `graph` keeps the rules of kProducts (workload.h). REQUIRES: find_joined_products(graph).
Status check_joined_products(const Graph& graph);

}  // namespace kiln
