// RmsNorm: x * s * w in front of a product, of which s is a number of each row, computed from the sum of its
// squares, and w one of each column. A kernel of few rows multiplies x * w, adds up the squares meanwhile,
// and scales the sums of the product: no kernel computes the norm in front of it. Pure functions.
#pragma once

#include <optional>
#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln {

// Products of at most so many rows, whose second operand has at most so many bytes, are left to kernels of few
// rows (tests/gpu/LOG.md, "Chains of few rows"). These scale their rows themselves: every block adds up all
// squares.
inline constexpr int64_t kMostRmsNormRows = 16;
inline constexpr int64_t kMostRmsNormOperand = int64_t{128} << 20;
// A block keeps all of w, which has at most so many bytes.
inline constexpr int64_t kMostRmsNormWeights = int64_t{32} << 10;

// Nodes of the first operand of a product, [m, k] of bf16. There is none of f16, where x * w may overflow
// although x * s * w does not.
struct RmsNorm {
  NodeId rows = kInvalidNode;     // x, of bf16
  NodeId squares = kInvalidNode;  // the sum of the squares of each of them
  NodeId scale = kInvalidNode;    // s, a View that repeats it along its row
  // What w is computed from: a View of an input of halves or f32, which repeats along the columns of x.
  // kInvalidNode: there is no w.
  NodeId columns = kInvalidNode;
  DType columns_dtype = DType::kBF16;
  // What the operand is computed by, itself among them, ascending. Without x and Views of inputs.
  std::vector<NodeId> nodes;
};

// Casts, and one or two Muls, of x, s and w. The squares are those of x, of the same shape or another.
// Nothing where `operand` is anything else.
std::optional<RmsNorm> find_rms_norm(const Graph& graph, NodeId operand);

// The same of the first operand of a Matmul of at most kMostRmsNormRows rows in a graph that is being
// partitioned, where it is worth leaving to the products: where they alone read it, none is too long, and
// kernels are written for them. `users`: of the graph.
std::optional<RmsNorm> find_rms_norm_of_product(const Graph& graph,
                                                const std::vector<std::vector<NodeId>>& users,
                                                NodeId matmul);

}  // namespace kiln
