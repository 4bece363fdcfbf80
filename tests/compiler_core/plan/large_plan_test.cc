// Graphs of tens of thousands of nodes and of depth 50,000 planned and interpreted: on a small
// stack, so that recursion over a graph shows, and into kernels of bounded size.
#include <gtest/gtest.h>
#include <pthread.h>

#include "compiler_core/ir/interpreter.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/plan.h"
#include "tests/compiler_core/plan/large_graphs.h"

namespace kiln {
namespace {

constexpr size_t kStackBytes = 256 << 10;  // 50,000 frames of any function are more

struct Job {
  Graph (*make)(int nodes);
  int nodes;
  std::string error;
  Plan plan;
  std::vector<Tensor> values;  // of inputs that are all zero
};

void* plan_and_interpret(void* argument) {
  auto& job = *static_cast<Job*>(argument);
  const Graph graph = job.make(job.nodes);
  const auto form = normalise(graph);
  if (!form) return job.error = form.error().message, nullptr;
  auto made = plan(form->graph);
  if (!made) return job.error = made.error().message, nullptr;
  job.plan = *std::move(made);
  std::vector<Tensor> tensors;
  std::vector<const Tensor*> inputs;
  for (NodeId id : graph.inputs())
    tensors.emplace_back(graph.node(id).dtype, constant_sizes(graph.node(id).shape));
  for (const Tensor& tensor : tensors) inputs.push_back(&tensor);
  auto values = interpret(graph, inputs);
  if (!values) return job.error = values.error().message, nullptr;
  job.values = *std::move(values);
  return nullptr;
}

Job run(Graph (*make)(int), int nodes) {
  Job job{make, nodes, "", {}, {}};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  EXPECT_EQ(pthread_attr_setstacksize(&attributes, kStackBytes), 0);
  pthread_t thread;
  EXPECT_EQ(pthread_create(&thread, &attributes, plan_and_interpret, &job), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_EQ(job.error, "");
  return job;
}

size_t most_arguments(const Plan& plan) {
  size_t most = 0;
  for (const Launch& launch : plan.launches) most = std::max(most, launch.args.size());
  return most;
}

TEST(LargePlan, AChainOfDepth50000) {
  const Job job = run(testing::deep_chain, 50'000);
  ASSERT_EQ(job.values.size(), 1u);
  EXPECT_GT(job.plan.launches.size(), 50'000u / 256);
  EXPECT_LT(job.plan.launches.size(), 50'000u / 64);
  EXPECT_EQ(job.plan.arena_bytes, Dim(2 * 64));
}

TEST(LargePlan, ASumOfThousandsOfInputs) {
  const Job job = run(testing::wide_sum, 30'000);
  ASSERT_EQ(job.values.size(), 1u);
  EXPECT_EQ(job.values[0].get(0), 0);
  EXPECT_LE(most_arguments(job.plan), 33u);
}

// Twice the layers, twice the launches and the same kernels; the arena stays.
TEST(LargePlan, EqualLayersCostLaunchesOnly) {
  const Job few = run(testing::layers, 6'000), many = run(testing::layers, 12'000);
  EXPECT_EQ(many.plan.kernels.size(), few.plan.kernels.size());
  EXPECT_NEAR(static_cast<double>(many.plan.launches.size()),
              2.0 * static_cast<double>(few.plan.launches.size()), 8);
  EXPECT_EQ(many.plan.arena_bytes, few.plan.arena_bytes);
}

}  // namespace
}  // namespace kiln
