// Attention in every form that models write it in, as workloads. For the tests of the kernels and
// of the pattern.
#pragma once

#include <vector>

#include "compiler_core/ir/builder.h"
#include "compiler_core/plan/workload.h"

namespace kiln::testing {

struct AttentionGraph {
  enum class Mask { kNone, kCausal, kBool, kAdditive, kCausalAndBool, kWindow, kBand, kLeast };
  enum class Division { kBefore, kAfter };  // of the weights, by their sum

  DType dtype = DType::kF32;
  std::vector<Symbol> symbols = {};  // of the sizes of batch, rows and keys
  Shape batch = {};
  Dim rows = 16, keys = 16;
  int64_t depth = 16, columns = 16;
  Mask mask = Mask::kNone;
  int64_t reach = 0;     // of a causal mask: how far past its own place a row sees
  int64_t past = 20;     // of a window, or a band: how far before its own place
  bool guarded = false;  // rows that see nothing are 0
  Division division = Division::kBefore;
  int64_t shared_by = 1;    // rows of the last batch axis that have one key and value
  bool transposed = false;  // the result as [rows, batch..., columns] within the first batch axis
  bool output_bias = false;
  // Operands are read out of [batch 0, tokens, other batch axes, width], as projections leave them.
  bool heads_inside = false;
  // What keys and values are made of: themselves; 8 bits and a scale, of all or of each token; pages of 4
  // tokens (of batches of two axes), that a table names; 8 bits in pages.
  enum class Cache { kPlain, kScaled, kScaledTokens, kPages, kScaledPages };
  Cache cache = Cache::kPlain;
  DType cached = DType::kF8E4M3;                // the 8 bits
  bool plain_values = false;                    // keys alone are made so
  enum class LogSums { kNone, kFirst, kLast };  // the place of log(sum) + maximum among the outputs
  LogSums log_sums = LogSums::kNone;
};
inline constexpr AttentionGraph::Mask kEveryMask[] = {
    AttentionGraph::Mask::kNone,          AttentionGraph::Mask::kCausal,
    AttentionGraph::Mask::kBool,          AttentionGraph::Mask::kAdditive,
    AttentionGraph::Mask::kCausalAndBool, AttentionGraph::Mask::kWindow,
    AttentionGraph::Mask::kBand,          AttentionGraph::Mask::kLeast};

inline constexpr AttentionGraph::Cache kEveryCache[] = {
    AttentionGraph::Cache::kScaled, AttentionGraph::Cache::kScaledTokens,
    AttentionGraph::Cache::kPages, AttentionGraph::Cache::kScaledPages};

// REQUIRES: shared_by > 1 and transposed want a batch axis.
Graph attention_graph(const AttentionGraph& wanted);
// With log_sums, two of bf16 and two of `dtype`, under masks of which two hide all keys from three rows.
std::vector<AttentionGraph> attention_with_log_sums(int64_t rows, int64_t keys, DType dtype);
// kUnsupported when it is none of kAttention.
Result<Workload> attention_workload(const AttentionGraph& wanted);

}  // namespace kiln::testing
