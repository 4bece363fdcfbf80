// Normalisation: equal computations get equal graphs and equal digests, whatever their names, node
// order or spelling. The pipeline of passes is in normalise.cc and reads top to bottom.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "compiler_core/base/digest.h"
#include "compiler_core/ir/graph.h"

namespace kiln {

struct NormalForm {
  Graph graph;                   // canonical: nodes, inputs and symbols in canonical order
  Digest digest;                 // GraphDigest
  std::vector<int> input_order;  // input_order[i] is the caller's input that is canonical input i;
                                 // inputs that no output needs do not occur
};

// Called after each pass of a pipeline, in order, with the pass's name and result. May be empty.
using PassObserver = std::function<void(std::string_view pass, const Graph& graph)>;

// Ends every pass of a pipeline: puts the pass's name into its error, calls the observer, and in
// debug builds verifies the graph. A pass that breaks a graph is a bug of ours (kInternal), named
// here rather than three stages later.
Result<Graph> after_pass(std::string_view pass, Result<Graph> graph, const PassObserver& after);

Result<NormalForm> normalise(const Graph& graph, const PassObserver& after = {});

// Part of every digest; a change to what normal form means bumps it.
inline constexpr int64_t kNormaliserVersion = 2;

// The digest of a graph as it stands, node by node: GraphDigest when `canonical` is in normal form.
Digest digest_of(const Graph& canonical, std::string_view domain);

}  // namespace kiln
