// Moves Views of elementwise nodes to the operands, where chains of views meet and merge into one;
// so that reshape, permute and slice leave no trace between arithmetic, wherever the user put them.
#pragma once

#include "compiler_core/ir/graph.h"

namespace kiln {

enum class SinkLimit {
  // Only views that do not repeat elements: a broadcast stays above the cheaper computation.
  kNoExtraWork,
  // Broadcasts too, as long as nothing below is reduced, contracted, gathered or joined: a kernel
  // computes such values anew for every element rather than keep them in memory.
  kRecomputePointwise,
};

Result<Graph> sink_views(const Graph& graph, SinkLimit limit);

}  // namespace kiln
