#include "compiler_core/passes/normalise.h"

#include "compiler_core/ir/verify.h"
#include "compiler_core/passes/passes.h"

namespace kiln {

Result<Graph> after_pass(std::string_view pass, Result<Graph> graph, const PassObserver& after) {
  if (!graph) return fail(graph.error().within(pass));
  if (after) after(pass, *graph);
#ifdef KILN_VERIFY_PASSES
  if (auto status = verify(*graph); !status)
    return fail({Code::kInternal, status.error().within(pass).message, 0});
#endif
  return graph;
}

Result<NormalForm> normalise(const Graph& input, const PassObserver& after) {
  // First say what is computed: half types compute in f32. The casts this adds are ordinary nodes,
  // and the rules below remove those that a neighbour undoes.
  TRY(Graph graph, after_pass("expand_half", expand_half(input), after));
  // Then fewer nodes: constants are folded and no-ops go, so that views that had only a no-op
  // between them meet in the next pass.
  TRY(graph, after_pass("simplify", simplify(graph), after));
  // What depends on no input is known: masks over positions shrink to the comparisons that they
  // are. Before broadcasts meet arithmetic, while these values are small.
  TRY(graph, after_pass("fold_constants", fold_constants(graph), after));
  // Views go below arithmetic and merge. What is left of a permutation is how a leaf is read.
  TRY(graph, after_pass("sink_views", sink_views(graph, SinkLimit::kNoExtraWork), after));
  // With the views out of the way arithmetic meets arithmetic, and the same rules apply once more.
  TRY(graph, after_pass("simplify_again", simplify(graph), after));
  // Last the order of everything, from colours that depend on nothing but the computation. No pass
  // may follow: an order is only canonical for the graph it was made for.
  TRY(Canonical canonical, canonicalise(graph));
  if (after) after("canonicalise", canonical.graph);

  NormalForm form;
  form.digest = digest_of(canonical.graph, "kiln.graph");
  form.graph = std::move(canonical.graph);
  form.input_order = std::move(canonical.input_order);
  return form;
}

}  // namespace kiln
