// MaskBounds: which keys of attention a mask of places hides: a causal mask those behind a row, a sliding
// window those far before it, too. Values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "compiler_core/ir/graph.h"

namespace kiln {

// What a mask says of scores [b..., m, n] whatever the inputs are. Those of keys that it hides are -inf, or so
// low that they weigh nothing beside the row's own, as long as that is finite.
struct MaskBounds {
  std::optional<Dim> reach = {};  // keys past row + reach are hidden: a causal mask has reach 0
  std::optional<Dim> past = {};   // and keys before row - past: a sliding window has both
  // With either: what the scores are elsewhere, when the mask says nothing else.
  NodeId within = kInvalidNode;
};
MaskBounds find_mask_bounds(const Graph& graph, NodeId scores);

// What select(seen, x, -inf) has where a row sees: x, whichever operand it is; `scores` themselves where they
// are something else.
NodeId scores_under_mask(const Graph& graph, NodeId scores);

// The part of rows x keys scores that the mask shows: 0 to 1. `symbols`: the values of the graph's symbols.
// kInvalidArgument when one is unbound.
Result<double> shown_share(const MaskBounds& mask, int64_t rows, int64_t keys,
                           std::span<const int64_t> symbols);

}  // namespace kiln
