// Graphs of 100,000 nodes and of depth 50,000 through text, verification and normal form: on a
// small stack, so that recursion over a graph shows, and in memory that grows with the graph and
// not with its square.
#include <gtest/gtest.h>
#include <pthread.h>

#include "compiler_core/ir/text.h"
#include "compiler_core/ir/verify.h"
#include "compiler_core/passes/normalise.h"
#include "tests/compiler_core/plan/large_graphs.h"

namespace kiln {
namespace {

constexpr size_t kStackBytes = 256 << 10;  // 50,000 frames of any function are more

// Runs `body(argument)` on a stack of kStackBytes.
void on_small_stack(void* (*body)(void*), void* argument) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kStackBytes), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, body, argument), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

struct Outcome {
  Graph (*make)(int nodes);
  int nodes;
  std::string error;
  int normal_nodes = 0;
};

void* normalise_text(void* argument) {
  auto& outcome = *static_cast<Outcome*>(argument);
  const auto graph = parse_graph(print(outcome.make(outcome.nodes)));
  if (!graph) return outcome.error = graph.error().message, nullptr;
  if (const Status good = verify(*graph); !good)
    return outcome.error = good.error().message, nullptr;
  const auto form = normalise(*graph);
  if (!form) return outcome.error = form.error().message, nullptr;
  outcome.normal_nodes = form->graph.size();
  return nullptr;
}

Outcome run(Graph (*make)(int), int nodes) {
  Outcome outcome{make, nodes, "", 0};
  on_small_stack(normalise_text, &outcome);
  EXPECT_EQ(outcome.error, "");
  return outcome;
}

TEST(LargeGraphs, AChainOfDepth50000NeedsNoStack) {
  EXPECT_EQ(run(testing::deep_chain, 50'000).normal_nodes, 50'000);
}

TEST(LargeGraphs, AHundredThousandNodesAreFine) {
  EXPECT_GT(run(testing::wide_sum, 100'000).normal_nodes, 99'000);
}

// Where every step could double what is read, the normal form stays in proportion.
TEST(LargeGraphs, RearrangementsThatDoNotComposeStayInProportion) {
  const int few = run(testing::doubling_views, 1'000).normal_nodes;
  const int many = run(testing::doubling_views, 2'000).normal_nodes;
  EXPECT_LT(many, 3 * few);
  EXPECT_LT(few, 10'000) << "in proportion to the graph, not to a bound for any graph";
}

}  // namespace
}  // namespace kiln
