// Which values of a graph get a buffer: the first decision of a plan. Every stored value is the
// output of one kernel, which computes it from other stored values and the inputs; what is not
// stored is computed wherever it is needed.
#pragma once

#include <unordered_map>
#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln {

// Sizes of batch ++ reduced ++ kept of a reduction. Nodes that walk these in one row-major order
// belong to one iteration space, however their axes are written.
struct ReductionSizes {
  Dim batch = 1, reduced = 1, kept = 1;
  bool operator==(const ReductionSizes&) const = default;
};
// REQUIRES: the reduced axes are neighbours (split_reductions).
ReductionSizes reduction_sizes(const Graph& graph, const Node& reduce);

// Whether `view` reads its operand's elements all, once and in order: a reshape.
bool is_reshape(const Graph& graph, const Node& view);

struct StoredValues {
  std::vector<bool> stored;  // by node
  // For the end of a matmul's epilogue that stands in a rearrangement of the product: the View
  // through which it reads the product. Its buffer has the product's shape and order.
  std::unordered_map<NodeId, NodeId> product_view;

  bool operator[](NodeId id) const { return stored[static_cast<size_t>(id)]; }
};

// Where rules decide what only a measurement could; see alternatives.h.
struct CutRules {
  bool attention = true;     // matmul, softmax, matmul is one kernel; else it is three
  bool store_shared = true;  // cheap values that several kernels need are stored; else each
                             // computes them
  bool operator==(const CutRules&) const = default;
};

// REQUIRES: reductions are split, broadcasts of pointwise values sunk.
StoredValues choose_stored_values(const Graph& graph, const CutRules& rules = {});

}  // namespace kiln
