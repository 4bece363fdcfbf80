// Which values of a graph get a buffer: the first decision of a plan. Every materialised value is
// an output of one kernel, which computes it from other materialised values and the inputs; all
// other values are computed wherever they are needed.
#pragma once

#include <limits>
#include <unordered_map>
#include <vector>

#include "compiler_core/ir/graph.h"
#include "compiler_core/plan/attention/attention.h"
#include "compiler_core/plan/row_update.h"

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

// Whether `view` repeats a reduced value of `sizes` along the reduced axes, in row-major order.
bool is_spread(const Node& view, const ReductionSizes& sizes);

struct MaterialisedValues {
  std::vector<bool> stored;  // by node
  // Maps the last node of an epilogue computed in a permuted layout to the View that permutes the
  // matmul result. Such a value's buffer has the product's shape and order. What follows a View that
  // puts a convolution's channels last is stored in that order, and is not among them.
  std::unordered_map<NodeId, NodeId> product_view;
  // Maps a further output of a kernel of attention or of its gradient to the first one.
  std::unordered_map<NodeId, NodeId> beside;
  RowUpdates row_updates;

  bool operator[](NodeId id) const { return stored[static_cast<size_t>(id)]; }
};

// Decisions that rules take although only a measurement could; see alternatives.h.
struct PartitionRules {
  bool attention = true;     // matmul, softmax, matmul is one kernel; else it is three
  bool store_shared = true;  // cheap values that several kernels need are stored; else each
                             // computes them
  bool widen_stored = true;  // operands of products that widen 8 bits are stored so; else the
                             // product's kernel widens them
  // Convolutions' images lie channels last between kernels, where kernels are written for it: a
  // matter of the target (kernels/untimed_partition.h).
  bool channels_last = false;
  // Products read the matrices that an index picks where they lie (picked_products.h): a matter of the
  // target too. Else rows of one matrix come in blocks, of which each has a copy.
  bool picks_matrices = false;
  // Attention of one row of many keys is one kernel as well (attention.h): a matter of the target too.
  OnePass one_pass = OnePass::kManyRows;
  // Attention of few rows computes keys and values of 8 bits, or of pages, as it reads them
  // (computed_operands.h): a matter of the target as well. Else each is stored.
  bool computes_keys = false;
  // Gradients of attention are two kernels that keep no scores (attention_gradient.h): a matter of the
  // target as well. Else each of their products is one.
  bool gradients = false;
  // Matmuls of one first operand of at most so many rows are one kernel (joined_products.h): a matter of
  // the target as well. 0: none are. Of kAnyRows they are whatever their number is, also where calls choose it.
  static constexpr int64_t kAnyRows = std::numeric_limits<int64_t>::max();
  int64_t most_joined_rows = 0;
  // Products of few rows scale them as a norm does (rms_norm.h): a matter of the target as well. Else a
  // kernel of its own stores what they multiply.
  bool norms_in_products = false;
  bool operator==(const PartitionRules&) const = default;
};

// REQUIRES: reductions are split, broadcasts of pointwise values sunk.
MaterialisedValues choose_materialised_values(const Graph& graph, const PartitionRules& rules = {});

// Stores every value that several kernels would each compute where that takes more than reading it
// back: where it is more than one operation on one buffer. Values `in_place`, by node, are computed
// by the products that read them. The last of the steps of choose_materialised_values().
void store_shared_values(const Graph& graph, const PartitionRules& rules,
                         const std::vector<bool>& in_place, MaterialisedValues& values);

// The part of a matmul's kernel that follows the product.
struct Epilogue {
  NodeId view = kInvalidNode;  // permutes the product for all of the epilogue, if anything does
  NodeId end = kInvalidNode;   // the value that is stored; the product itself when nothing is fused
  std::vector<NodeId> nodes;   // the elementwise nodes between the product and `end`, with `end`
};

// How far the epilogue of `product` reaches. `end` is the last node, within reach, that every use
// of the product passes through by way of arithmetic alone: so a matmul kernel has one output, and
// values with several different uses are stored once. The epilogue stops before nodes that another
// matmul has claimed (`owner[node]` is not kInvalidNode): where two products meet, one reads the
// other's result. With `keeps_view` the product's kernel stores in the order of `view`, so that it
// may end anywhere behind it, or there.
Epilogue find_epilogue(const Graph& graph, const std::vector<std::vector<NodeId>>& users,
                       const std::vector<bool>& is_output, const std::vector<NodeId>& owner,
                       NodeId product, bool keeps_view = false);

}  // namespace kiln
