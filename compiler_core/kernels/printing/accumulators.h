// Accumulators: the text around a reduction loop: declaring an accumulator for each reduction and
// unrolled vector, combining them, folding them across lanes. Pure functions over names:
// reduction N has the accumulators acc{N}_{u} and the result result{N} (a splat of its register
// type).
#pragma once

#include <span>
#include <string>

#include "compiler_core/ir/graph.h"

namespace kiln {

// "Sum", "Prod", "Max" or "Min": the template argument for a reduction's op.
std::string_view combiner(Op op);
// C text of the value that changes nothing under the reduction.
std::string identity_text(const Node& reduce);

// A reduction's end in expression.h's vocabulary: its value in a register of its
// dtype, from the one it was accumulated in (small integers wrap once, at the end).
std::string finished(const Node& reduce, const std::string& accumulated);

struct ReductionLoop {
  const Graph& graph;
  std::span<const NodeId> reduces;
  int unroll = 1;

  // acc{N}_{u} for every reduction, set to the identity.
  std::string declare(int indent) const;
  // ", acc3_0, acc5_0": arguments for the body of unrolled vector u.
  std::string arguments(int u) const;
  // ", vf32& acc3, vf32& acc5": the body's parameters.
  std::string parameters() const;
  // Folds the accumulators of all u into acc{N}_0.
  std::string combine(int indent) const;
};

}  // namespace kiln
