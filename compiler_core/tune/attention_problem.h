// AttentionProblem: an attention workload in numbers: what schedules are chosen by and code is
// printed from. A value.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler_core/plan/attention.h"

namespace kiln {

// How query, key or value lies in the input it is read from: element strides, of the tokens' rows,
// of a head's columns and of each batch axis.
struct AttentionOperand {
  int input = 0;  // position among the workload's inputs
  int64_t offset = 0;
  std::vector<int64_t> batch_strides;
  int64_t row_stride = 0;     // from token to token
  int64_t column_stride = 0;  // within a head
};

struct AttentionProblem {
  AttentionPattern pattern;
  NodeId result = kInvalidNode;    // the product, or the View of it that the epilogue starts from
  NodeId sum_view = kInvalidNode;  // what of the epilogue reads row_sum, if anything
  // result_axes[i]: the axis of [batch..., row, column] that is axis i of the result.
  std::vector<int> result_axes;
  DType stored = DType::kF32;  // of query, key and value
  std::vector<int64_t> batch;  // sizes of the batch axes
  int64_t batches = 1;         // their product
  int64_t rows = 0;            // queries
  int64_t keys = 0;
  int64_t depth = 0;    // of a head of query and key
  int64_t columns = 0;  // of a head of value
  AttentionOperand query, key, value;
  // Scores of keys past row + reach are -inf, whatever the inputs: a causal mask has reach 0.
  std::optional<int64_t> reach;
  // With a reach: what the scores are elsewhere, when the mask says nothing else.
  NodeId scores_within = kInvalidNode;

  // REQUIRES: `workload` keeps the rules of kAttention.
  static AttentionProblem of(const Graph& workload);
};

}  // namespace kiln
