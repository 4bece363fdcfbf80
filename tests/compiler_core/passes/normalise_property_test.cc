// Normalisation over random graphs: what it computes, that every spelling of a computation leads to
// one digest, that normal form is a fixed point.
#include "compiler_core/passes/normalise.h"

#include <gtest/gtest.h>

#include "compiler_core/ir/text.h"
#include "compiler_core/ir/verify.h"
#include "compiler_core/passes/passes.h"
#include "tests/compiler_core/passes/random_graph.h"

namespace kiln {
namespace {

using namespace testing;  // NOLINT: this project's own

constexpr int kGraphs = 400;

NormalForm normal_form(const Graph& graph) {
  auto form = normalise(graph);
  EXPECT_TRUE(form.has_value()) << form.error().message << "\n" << print(graph);
  return form ? *std::move(form) : NormalForm();
}

void expect_same_function(const Graph& before, const Graph& after, const std::vector<int>& order,
                          uint64_t seed, double tolerance) {
  const std::vector<Tensor> inputs = random_inputs(before, seed);
  const auto expected = evaluate(before, in_order(inputs));
  const auto actual = evaluate(after, in_order(inputs, order));
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE("output " + std::to_string(i));
    ASSERT_EQ(expected[i].sizes(), actual[i].sizes());
    ASSERT_NO_FATAL_FAILURE(expect_equal(expected[i], actual[i], tolerance));
  }
}

TEST(NormaliseProperty, GraphsWithoutSumsKeepEveryBit) {
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    const Graph graph = random_graph(seed, Kinds::kExact, 12);
    const NormalForm form = normal_form(graph);
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + print(graph) + print(form.graph));
    ASSERT_TRUE(verify(form.graph).has_value());
    ASSERT_NO_FATAL_FAILURE(expect_same_function(graph, form.graph, form.input_order, seed, 0));
  }
}

TEST(NormaliseProperty, GraphsWithSumsKeepTheirValueUpToReassociation) {
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    const Graph graph = random_graph(seed, Kinds::kSmooth, 10);
    const NormalForm form = normal_form(graph);
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + print(graph) + print(form.graph));
    ASSERT_TRUE(verify(form.graph).has_value());
    ASSERT_NO_FATAL_FAILURE(expect_same_function(graph, form.graph, form.input_order, seed, 1e-6));
  }
}

TEST(NormaliseProperty, EverySpellingHasOneDigestAndInputOrderSaysWhichInputIsWhich) {
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    const Kinds kinds = seed % 2 == 0 ? Kinds::kExact : Kinds::kSmooth;
    const Graph graph = random_graph(seed, kinds, 12);
    const NormalForm form = normal_form(graph);
    for (uint64_t other = 1; other <= 3; ++other) {
      const Respelled copy = respell(graph, seed * 10 + other);
      const NormalForm copy_form = normal_form(copy.graph);
      SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + print(graph) + print(form.graph) +
                   print(copy_form.graph));
      ASSERT_EQ(form.digest, copy_form.digest);
      ASSERT_EQ(form.graph, copy_form.graph);
      std::vector<int> order;
      for (int i : copy_form.input_order) order.push_back(copy.inputs[static_cast<size_t>(i)]);
      ASSERT_NO_FATAL_FAILURE(expect_same_function(graph, copy_form.graph, order, seed,
                                                   kinds == Kinds::kExact ? 0 : 1e-6));
    }
  }
}

TEST(NormaliseProperty, NormalFormIsAFixedPoint) {
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    const Graph graph = random_graph(seed, seed % 2 == 0 ? Kinds::kExact : Kinds::kSmooth, 12);
    const NormalForm once = normal_form(graph), twice = normal_form(once.graph);
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + print(graph) + print(once.graph) +
                 print(twice.graph));
    ASSERT_EQ(once.graph, twice.graph);
    ASSERT_EQ(once.digest, twice.digest);
  }
}

TEST(NormaliseProperty, EveryPassAloneKeepsTheFunctionAndIsValid) {
  using Pass = Result<Graph> (*)(const Graph&);
  const std::vector<Pass> passes = {
      expand_half, simplify, [](const Graph& g) { return sink_views(g, SinkLimit::kNoExtraWork); },
      [](const Graph& g) { return sink_views(g, SinkLimit::kRecomputePointwise); },
      [](const Graph& g) { return sink_views(g, SinkLimit::kRecompute); }};
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    const Kinds kinds = seed % 2 == 0 ? Kinds::kExact : Kinds::kSmooth;
    const Graph graph = random_graph(seed, kinds, 10);
    std::vector<int> order;
    for (size_t i = 0; i < graph.inputs().size(); ++i) order.push_back(static_cast<int>(i));
    for (size_t p = 0; p < passes.size(); ++p) {
      SCOPED_TRACE("seed " + std::to_string(seed) + " pass " + std::to_string(p) + "\n" +
                   print(graph));
      const auto after = passes[p](graph);
      ASSERT_TRUE(after.has_value()) << after.error().message;
      ASSERT_TRUE(verify(*after).has_value());
      ASSERT_NO_FATAL_FAILURE(
          expect_same_function(graph, *after, order, seed, kinds == Kinds::kExact ? 0 : 1e-6));
    }
  }
}

}  // namespace
}  // namespace kiln
