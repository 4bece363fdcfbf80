// Keys and values that a kernel of attention of few rows computes as it reads them: of a cache that
// holds 8 bits and scales, or pages that a table names. Pure functions.
#pragma once

#include <vector>

#include "compiler_core/plan/attention/attention.h"

namespace kiln {

// The most rows (m) of attention whose keys and values are computed. A block has all of them, so that it
// computes nothing twice.
inline constexpr int64_t kMostRowsOfComputed = 16;

// The nodes that `operand` is computed by, itself among them, ascending: elementwise nodes and Gathers, and
// Views. Empty where it is an input or Views of one.
std::vector<NodeId> computed_operand(const Graph& graph, NodeId operand);

// Whether an attention's operands that are computed keep the rules of attention.h. kUnsupported says which
// they break.
Status check_computed_operands(const Graph& graph, const AttentionPattern& pattern);

// By node of a graph that is being partitioned: whether kernels of attention compute it for themselves.
// That pays where all that is read lies in memory in any case: inputs, outputs, and what kernels of one
// node give. `parts`: attention_parts() of the graph.
std::vector<bool> computed_by_attention(const Graph& graph,
                                        const std::vector<std::vector<NodeId>>& users,
                                        const std::vector<AttentionPart>& parts);

}  // namespace kiln
