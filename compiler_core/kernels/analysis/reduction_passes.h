// ReductionPasses: how a reduction kernel walks its rows (or columns): which reductions one loop
// over the data can take together, which values a later loop needs again. For both reduction
// families; schedules and code generation read the same answer. A value.
//
// A node's depth is how many loops must have ended before it is known: 0 for what comes from
// inputs, 1 + the depth of its operand for a reduction (layernorm: mean 1, variance 2). Loop d
// takes the reductions whose operand has depth d and stores the full outputs of depth d.
#pragma once

#include <vector>

#include "compiler_core/plan/workload.h"

namespace kiln {

struct ReductionPasses {
  struct Pass {
    std::vector<NodeId> reduces;  // taken in this loop
    std::vector<int> outputs;     // positions of the full outputs stored in it
    std::vector<NodeId> kept;     // full values it computes that later loops read from memory
    bool empty() const { return reduces.empty() && outputs.empty(); }
  };

  ReductionSpace space;
  std::vector<int> depth;            // of each node
  std::vector<Pass> passes;          // the last one may be empty
  std::vector<int> reduced_outputs;  // positions of the outputs of shape T

  // Values that later loops read from memory rather than compute again.
  enum class Keep : uint8_t {
    kNothing = 0,
    kCostly = 1,   // what has a transcendental, a division or a root in it
    kAnything = 2  // every elementwise value
  };
  // REQUIRES: workload.h's rules of the reduction families.
  static ReductionPasses of(const Graph& graph, Keep keep);

  bool is_full(const Graph& graph, NodeId id) const { return graph.node(id).shape == space.shape; }
  int64_t kept_bytes_per_element(const Graph& graph) const;
};

}  // namespace kiln
