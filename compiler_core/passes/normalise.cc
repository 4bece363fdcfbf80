#include "compiler_core/passes/normalise.h"

#include <iterator>

#include "compiler_core/ir/verify.h"
#include "compiler_core/passes/passes.h"
#include "compiler_core/passes/rewrite.h"

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

namespace {

struct Pass {
  const char* name;        // in its first round
  const char* name_again;  // in all others
  Result<Graph> (*run)(const Graph& graph);
};

Result<Graph> sink_views_that_cost_nothing(const Graph& graph) {
  return sink_views(graph, SinkLimit::kNoExtraWork);
}

constexpr Pass kPasses[] = {
    // Fewer nodes: constants are folded and no-ops go, so that views that had only a no-op between
    // them meet in the pass after next. Once views are out of the way, arithmetic meets arithmetic,
    // and the same rules apply again.
    {"simplify", "simplify_again", simplify},
    // Evaluates everything that depends on no input: masks over positions shrink to comparisons.
    // Runs before broadcasts meet arithmetic, while these values are small.
    {"fold_constants", "fold_constants_again", fold_constants},
    // And what follows from the places of elements alone, where sizes have symbols.
    {"fold_places", "fold_places_again", fold_places},
    // Views go below arithmetic and merge. What is left of a permutation is how a leaf is read.
    {"sink_views", "sink_views_again", sink_views_that_cost_nothing},
};

// Rounds of all passes; two are usual. A graph that still changes after them (none is known) has a
// digest, but its normal form has another.
constexpr int kMostRounds = 8;

}  // namespace

Result<NormalForm> normalise(const Graph& input, const PassObserver& after) {
  // First say what is computed: half types compute in f32. The casts this adds are ordinary nodes,
  // and the rules below remove those that a neighbour undoes.
  TRY(Graph graph, after_pass("expand_half", expand_half(input), after));
  // Then the passes in turn until none of them changes anything: normal form is a fixed point of
  // each of them, so that a graph that is in normal form keeps its digest.
  size_t unchanged = 0;
  for (int round = 0; round < kMostRounds && unchanged < std::size(kPasses); ++round)
    for (const Pass& pass : kPasses) {
      const char* const name = round == 0 ? pass.name : pass.name_again;
      TRY(Graph next, after_pass(name, pass.run(graph), after));
      unchanged = equal_up_to_order(graph, next) ? unchanged + 1 : 0;
      graph = std::move(next);
      if (unchanged == std::size(kPasses)) break;
    }
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
