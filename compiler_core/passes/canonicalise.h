// The canonical form: nodes in the order of a traversal from the outputs that follows colours (see
// colours.h), operands of commutative ops in the order of their colours, inputs and symbols
// numbered as the traversal meets them. Drops whatever no output needs.
#pragma once

#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln {

struct Canonical {
  Graph graph;
  std::vector<int> input_order;        // input_order[i] is the old input that is now input i
  std::vector<SymbolId> symbol_order;  // the old symbol that is now symbol i
};

// A size may be known only from an input that is otherwise not needed.
enum class UnusedInputs { kKeepWhatBindsSymbols, kDrop };

Result<Canonical> canonicalise(const Graph& graph,
                               UnusedInputs unused = UnusedInputs::kKeepWhatBindsSymbols);

}  // namespace kiln
