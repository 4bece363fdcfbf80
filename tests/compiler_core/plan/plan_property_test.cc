// Plans of random graphs: run kernel by kernel on an arena they give what the graph gives.
#include "compiler_core/plan/plan.h"

#include <gtest/gtest.h>

#include <set>

#include "compiler_core/ir/text.h"
#include "compiler_core/ir/verify.h"
#include "compiler_core/passes/normalise.h"
#include "tests/compiler_core/passes/random_graph.h"
#include "tests/compiler_core/plan/run_plan.h"

namespace kiln {
namespace {

using namespace testing;  // NOLINT: this project's own

constexpr int kGraphs = 300;

std::string describe(const Graph& graph, const Plan& plan) {
  std::string text = print(graph);
  for (const Workload& kernel : plan.kernels)
    text += std::string(to_string(kernel.family)) + "\n" + print(kernel.graph);
  return text;
}

void expect_plan_computes(const Graph& graph, const Plan& plan, uint64_t seed, double tolerance) {
  const std::vector<Tensor> inputs = random_inputs(graph, seed);
  const auto expected = evaluate(graph, in_order(inputs));
  const auto actual = run_plan(plan, in_order(inputs));
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE("output " + std::to_string(i));
    ASSERT_NO_FATAL_FAILURE(expect_equal(expected[i], actual[i], tolerance));
  }
}

class PlanProperty : public ::testing::TestWithParam<Kinds> {};

TEST_P(PlanProperty, KernelByKernelGivesWhatTheGraphGives) {
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    const auto form = normalise(random_graph(seed, GetParam(), 14));
    ASSERT_TRUE(form.has_value()) << form.error().message;
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + print(form->graph));
    const auto made = plan(form->graph);
    ASSERT_TRUE(made.has_value()) << made.error().message;
    for (const Workload& kernel : made->kernels) {
      ASSERT_TRUE(verify(kernel.graph).has_value());
      const auto family = classify(kernel.graph);
      ASSERT_TRUE(family.has_value()) << family.error().message;
      ASSERT_EQ(*family, kernel.family);
    }
    SCOPED_TRACE(describe(form->graph, *made));
    ASSERT_NO_FATAL_FAILURE(
        expect_plan_computes(form->graph, *made, seed, GetParam() == Kinds::kExact ? 0 : 1e-6));
  }
}

TEST_P(PlanProperty, OtherRulesAndNoFusionGiveTheSame) {
  std::vector<PartitionOptions> all(3);
  all[0].rules = {.attention = false, .store_shared = false};
  all[1].fuse = all[2].fuse = false;
  all[2].core_ops = true;
  for (uint64_t seed = 0; seed < kGraphs / 3; ++seed) {
    const auto form = normalise(random_graph(seed, GetParam(), 14));
    ASSERT_TRUE(form.has_value()) << form.error().message;
    for (const PartitionOptions& options : all) {
      auto parts = partition(form->graph, options);
      ASSERT_TRUE(parts.has_value()) << parts.error().message << print(form->graph);
      const auto made = plan(*std::move(parts));
      ASSERT_TRUE(made.has_value()) << made.error().message;
      SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + describe(form->graph, *made));
      ASSERT_NO_FATAL_FAILURE(
          expect_plan_computes(form->graph, *made, seed, GetParam() == Kinds::kExact ? 0 : 1e-6));
    }
  }
}

TEST_P(PlanProperty, EveryPassBeforeThePartitionLeavesAValidGraph) {
  std::set<std::string, std::less<>> passes;
  PartitionOptions options;
  options.after = [&passes](std::string_view pass, const Graph& graph) {
    passes.emplace(pass);
    const Status status = verify(graph);
    ASSERT_TRUE(status) << pass << ": " << status.error().message << "\n" << print(graph);
  };
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto form = normalise(random_graph(seed, GetParam(), 14));
    ASSERT_TRUE(form.has_value()) << form.error().message;
    ASSERT_TRUE(partition(form->graph, options).has_value());
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(passes.size(), 17u);
}

TEST_P(PlanProperty, EqualGraphsHaveEqualPlans) {
  for (uint64_t seed = 0; seed < kGraphs / 3; ++seed) {
    const Graph graph = random_graph(seed, GetParam(), 14);
    const auto a = normalise(graph), b = normalise(respell(graph, seed).graph);
    ASSERT_TRUE(a.has_value() && b.has_value());
    const auto plan_a = plan(a->graph), plan_b = plan(b->graph);
    ASSERT_TRUE(plan_a.has_value() && plan_b.has_value());
    ASSERT_EQ(plan_a->launches, plan_b->launches) << "seed " << seed;
    ASSERT_EQ(plan_a->buffers, plan_b->buffers) << "seed " << seed;
    for (size_t k = 0; k < plan_a->kernels.size(); ++k)
      ASSERT_EQ(plan_a->kernels[k].digest, plan_b->kernels[k].digest) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Graphs, PlanProperty, ::testing::Values(Kinds::kExact, Kinds::kSmooth),
                         [](const auto& kinds) {
                           return kinds.param == Kinds::kExact ? "Exact" : "Smooth";
                         });

}  // namespace
}  // namespace kiln
