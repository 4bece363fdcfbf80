// AttentionProblem: an attention workload in sizes: what schedules are chosen by and code is
// printed from. How many batches, queries and keys there are, and how far they lie apart, may have
// symbols. A value.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler_core/plan/attention/attention.h"
#include "compiler_core/plan/attention/mask_bounds.h"
#include "compiler_core/plan/workload.h"

namespace kiln {

// How query, key or value lies in the input it is read from: element strides, of the tokens' rows,
// of a head's columns and of each batch axis. An operand that the kernel computes has no strides;
// its batch_strides are 0 for axes along which it is the same, and 1 for others.
struct AttentionOperand {
  int input = 0;                   // position among the workload's inputs
  NodeId computed = kInvalidNode;  // the operand's node, where the kernel computes it
  Dim offset = 0;
  std::vector<Dim> batch_strides;
  Dim row_stride = 0;     // from token to token
  Dim column_stride = 0;  // within a head
};

struct AttentionProblem {
  AttentionPattern pattern;
  AttentionOutputs outputs;
  NodeId result = kInvalidNode;    // the product, or the View of it that the epilogue starts from
  NodeId sum_view = kInvalidNode;  // what of the epilogue reads row_sum, if anything
  // result_axes[i]: the axis of [batch..., row, column] that is axis i of the result.
  std::vector<int> result_axes;
  DType stored = DType::kF32;  // of query, key and value
  std::vector<Dim> batch;      // sizes of the batch axes
  Dim batches = 1;             // their product
  Dim rows = 0;                // queries
  Dim keys = 0;
  int64_t depth = 0;    // of a head of query and key
  int64_t columns = 0;  // of a head of value
  AttentionOperand query, key, value;
  MaskBounds mask;  // of the scores
  // The product of query_key and a positive constant, `scale`, that every score is which no mask
  // hides; query_key and 1 where scores are something else.
  NodeId scaled = kInvalidNode;
  double scale = 1;
  int heads_axis = -1;  // the batch axis whose heads are rows; -1: none
  bool moves_operands =
      true;  // keys and values that are computed are Views and Gathers alone: pages

  // REQUIRES: `workload` keeps the rules of kAttention.
  static AttentionProblem of(const Graph& workload);
  // Whether key or value is computed as it is read, which few kernels do (computed_operands.h).
  bool computes_operands() const {
    return key.computed != kInvalidNode || value.computed != kInvalidNode;
  }
  // The same problem with the heads that share keys and values as its rows, where each has one query
  // only: its batch axis `heads_axis` counts 1. The problem itself where there are no such heads.
  AttentionProblem with_heads_as_rows() const;
};

// Where a matmul's operand lies: a View of an Input, an Input, or what is computed of such. `tokens_last`:
// the last of its axes counts tokens, and the one before it is a head's.
AttentionOperand attention_operand(const Graph& graph, NodeId id, bool tokens_last);

// For templates whose kernels read keys and values as they lie.
Status check_operands_lie_in_memory(const Workload& workload);

}  // namespace kiln
