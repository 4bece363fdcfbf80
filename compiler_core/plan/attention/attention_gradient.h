// The gradient of attention, without its scores in memory: products with what is computed, element by
// element, from two products of one shape. Their pattern in a graph, and the rules of the family
// kAttentionGradient. Pure functions.
//
// The pattern, on canonical graphs of constant sizes:
//
//   first, second = Matmuls of query [b..., m, k] and key [b..., k, n], and of the result's gradient
//             [b..., m, d] and value [b..., d, n], in either order; f32
//   weights = elementwise nodes of shape [b..., m, n] over these, over Inputs of their shape and Views of
//             values of less elements (logarithms of sums, masks), rounded to fp16 or bf16
//   product = Matmul of weights [m, n] with key or value [n, ...], or, `over_rows`, of query or gradient
//             [..., m] with weights [m, n]: that operand is one of first's or second's
//   end     = its rounding to that type, or that of the one View of it that brings its axes into another
//             order, in which the width is last
//
// kAttentionGradient: one such kernel, of one product or of two that are over_rows both or neither, one
// with each operand; each end is an output.
#pragma once

#include <optional>
#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln {

struct GradientProduct {
  NodeId product = kInvalidNode, weights = kInvalidNode, end = kInvalidNode;
  bool of_first = true;  // its other operand is first's, not second's
};

struct AttentionGradient {
  NodeId first = kInvalidNode, second = kInvalidNode;
  bool over_rows = false;
  std::vector<GradientProduct> products;  // in the order of their ends
  // first, second, the arithmetic that depends on them, the products and what is between them and their
  // ends.
  std::vector<NodeId> inside;
};

// All such kernels of a graph, where nothing else reads first, second and the weights' arithmetic.
std::vector<AttentionGradient> attention_gradients(const Graph& graph,
                                                   const std::vector<std::vector<NodeId>>& users);
// The kernel of a workload.
std::optional<AttentionGradient> find_attention_gradient(const Graph& graph);

// Whether `graph` keeps the rules of kAttentionGradient. REQUIRES: find_attention_gradient(graph).
Status check_attention_gradient(const Graph& graph);

}  // namespace kiln
