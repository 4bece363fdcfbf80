// Attention: matmul, softmax over the last axis, matmul; its pattern in a graph, and the rules of
// the family kAttention. Pure functions.
//
// The pattern, on canonical graphs (f32 between the matmuls, whatever the operands are stored as):
//
//   query_key = Matmul [b..., m, k] x [b..., k, n]
//   scores    = elementwise nodes of shape [b..., m, n] over query_key and values that do not
//               depend on it (scale, bias, masks), roundings through fp16 or bf16 included
//   row_max   = ReduceMax of scores over the last axis
//   e         = exp(scores - row_max)
//   row_sum   = ReduceSum of e over the last axis
//   weights   = e, or e / row_sum, or e / row_sum with 0 for rows whose row_max is -inf;
//               cast to fp16 or bf16, or not
//   product   = Matmul of weights with [b..., n, d]
//   log_sums  = log(row_sum) + row_max, or of their reshapes, if anybody wants it: what gradients are
//               computed from
//
// Nodes outside read only product and what follows it, and log_sums; with weights = e, row_sum too.
//
// kAttention, beyond the rules of every family: the nodes of one such pattern, and
//  - query, key and value are Inputs or Views of Inputs, all three of one dtype: f32, f16 or bf16; where
//    m is at most 16, key and value may be computed (computed_operands.h): of elementwise nodes, Gathers,
//    and Views of them;
//  - scores read Inputs of their shape and Views of leaves;
//  - there is one output beside log_sums, of shape U: [b..., m, d] with all axes but the last in any
//    order. It is the product, or the one View of it that brings it into that order, or elementwise nodes of
//    shape U over that, over Inputs of shape U, over Views of leaves, and, where weights = e, over
//    the one View of row_sum that repeats it along d.
// Inputs are one-dimensional, so that heads that several queries share are Views too.
#pragma once

#include <optional>
#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln {

struct AttentionPattern {
  NodeId query_key = kInvalidNode, scores = kInvalidNode;
  NodeId row_max = kInvalidNode, row_sum = kInvalidNode;
  NodeId weights = kInvalidNode, product = kInvalidNode;
  NodeId log_sums = kInvalidNode;  // kInvalidNode: nobody wants them
  bool normalised = false;         // weights are divided by row_sum
  bool guarded = false;            // a row of -inf has weights 0, not NaN
  // The nodes that nothing outside reads but log_sums, ascending: query_key to weights, Views of row_sum.
  std::vector<NodeId> inside;
};

// Which attention becomes one pass. Its heads are at most 256 wide in any case.
//  - kManyRows: not few rows of many keys (m < 8, n >= 512; dynamic sizes count with their hints). Their
//    time is the reading of k and v, which several kernels divide among more blocks.
//  - kOneRow: one row of many keys as well, where as many batches as blocks are wanted (128) have keys of
//    their own.
//  - kOneRowInClusters: where eight have, since the blocks of a cluster divide the keys of each.
//  - kAlways: all of it. A workload has been cut already.
enum class OnePass : uint8_t { kManyRows, kOneRow, kOneRowInClusters, kAlways };

// The pattern that ends in the Matmul `product`; empty where there is none, where a head's width is
// not known, or where one pass does not pay.
std::optional<AttentionPattern> match_attention(const Graph& graph,
                                                const std::vector<std::vector<NodeId>>& users,
                                                NodeId product, OnePass one_pass);
// By node: the product of the pattern that the node is inside of, or is; kInvalidNode for others.
struct AttentionPart {
  NodeId product = kInvalidNode;
  bool is_log_sums = false;
};
std::vector<AttentionPart> attention_parts(const Graph& graph,
                                           const std::vector<std::vector<NodeId>>& users,
                                           OnePass one_pass);
// The pattern of a workload; nothing in graphs that do not have exactly two matmuls.
std::optional<AttentionPattern> find_attention(const Graph& graph);

// Which of the outputs is the product or what follows it, and which log_sums is; -1: none is.
struct AttentionOutputs {
  int result = -1, log_sums = -1;
};
AttentionOutputs attention_outputs(const Graph& graph, const AttentionPattern& pattern);

// The node that an epilogue starts from: the product, or the View that rearranges it.
NodeId attention_result(const Graph& graph, const AttentionPattern& pattern);

// Before a graph is partitioned: moves the rounding of an attention's result to fp16 or bf16 in
// front of a reshape that follows a permutation, so that the kernel that permutes also rounds.
Result<Graph> lift_attention_casts(const Graph& graph);

// Returns a kernel's graph with its batch axes split so that shared heads are simple Views, and
// otherwise merged as far as its Views allow; inputs are one-dimensional. Returns the graph itself
// where it has no pattern.
Result<Graph> arrange_attention(const Graph& graph);

// Whether arrange_attention() can split batch axes so that `view`, of the scores' shape and of another View,
// reads what that reads: a mask of fewer batches, repeated. REQUIRES: `pattern` is one of `graph`.
bool splits_batches(const Graph& graph, const AttentionPattern& pattern, NodeId view);

// Whether `graph` keeps the rules of kAttention; kUnsupported says which it breaks.
Status check_attention(const Graph& graph);

}  // namespace kiln
