// LowerSession: what kiln-runner does in the role `lower`: instantiates kernel templates, which is
// the step whose time and memory follow from a graph that anybody may send. One thread.
#pragma once

#include <optional>

#include "compiler_core/ir/graph.h"
#include "worker/runner/protocol.h"

namespace kiln::runner {

class LowerSession {
 public:
  // Lowered, or Failed with the code of kernels/registry.h lower().
  Reply handle(const Request& request);

 private:
  Result<Reply> lower(const LowerCandidate& request);

  // Candidates of a workload come one after the other.
  std::string graph_text_;
  std::optional<Graph> graph_;  // of graph_text_
};

}  // namespace kiln::runner
