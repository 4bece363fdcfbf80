#include "compiler_core/passes/passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"

namespace kiln {
namespace {

Graph sunk(GraphBuilder& b, NodeId output, SinkLimit limit = SinkLimit::kNoExtraWork) {
  auto graph = b.finish({output});
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  if (!graph) return {};
  auto after = sink_views(*graph, limit);
  EXPECT_TRUE(after.has_value()) << after.error().message;
  return after ? *std::move(after) : Graph();
}
const Node& output_of(const Graph& graph) {
  return graph.node(graph.outputs()[0]);
}
int count(const Graph& graph, Op op) {
  int found = 0;
  for (const Node& node : graph.nodes()) found += node.op == op;
  return found;
}

TEST(SinkViews, OppositePermutationsLeaveNoTrace) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {2, 3, 4});
  const NodeId y = b.unary(Op::kExp, b.permute(x, {2, 0, 1}));
  const Graph graph = sunk(b, b.unary(Op::kSin, b.permute(y, {1, 2, 0})));
  EXPECT_EQ(count(graph, Op::kView), 0) << print(graph);
}

TEST(SinkViews, ASliceMovesToEveryOperand) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {8}), y = b.input(DType::kF32, {8});
  const Graph graph = sunk(b, b.slice(b.binary(Op::kSub, x, y), 0, 2, 3));
  EXPECT_EQ(output_of(graph).op, Op::kSub) << print(graph);
  EXPECT_EQ(output_of(graph).shape, (Shape{3}));
}

TEST(SinkViews, ABroadcastStaysAboveTheCheaperComputation) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {8});
  const Graph graph = sunk(b, b.broadcast(b.unary(Op::kExp, x), {4, 8}));
  EXPECT_EQ(output_of(graph).op, Op::kView) << print(graph);
}

TEST(SinkViews, ABroadcastOfPointwiseValuesSinksWhenAsked) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {8});
  const Graph graph =
      sunk(b, b.broadcast(b.unary(Op::kExp, x), {4, 8}), SinkLimit::kRecomputePointwise);
  EXPECT_EQ(output_of(graph).op, Op::kExp) << print(graph);
}

TEST(SinkViews, WhatAProductReadsRepeatedIsComputedOnce) {
  for (const auto& [limit, shape] : {std::pair(SinkLimit::kRecomputePointwise, Shape{2, 4, 8, 16}),
                                     std::pair(SinkLimit::kRecomputeUnstored, Shape{2, 8, 16})}) {
    GraphBuilder b;
    const NodeId rows = b.input(DType::kF32, {2, 4, 3, 8});
    const NodeId shared = b.unary(Op::kExp, b.input(DType::kF32, {2, 8, 16}));
    const NodeId repeated = b.view(shared, {2, 4, 8, 16}, {128, 0, 16, 1}, 0);
    const Graph graph = sunk(b, b.matmul(rows, repeated), limit);
    const auto computed = std::ranges::find(graph.nodes(), Op::kExp, &Node::op);
    ASSERT_NE(computed, graph.nodes().end()) << print(graph);
    EXPECT_EQ(computed->shape, shape) << print(graph);
  }
}

TEST(SinkViews, ABroadcastOfWhatWasReducedNeverSinks) {
  GraphBuilder b;
  const NodeId sum = b.reduce(Op::kReduceSum, b.input(DType::kF32, {4, 8}), {1}, true);
  const Graph graph =
      sunk(b, b.broadcast(b.unary(Op::kExp, sum), {4, 8}), SinkLimit::kRecomputePointwise);
  EXPECT_EQ(output_of(graph).op, Op::kView) << print(graph);
  // ... but the axis that keepdim left is gone from the arithmetic below.
  EXPECT_EQ(graph.node(output_of(graph).operands[0]).shape, (Shape{4})) << print(graph);
}

TEST(SinkViews, ViewsThatDoNotComposeSinkTogether) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {2, 3, 4});
  const NodeId joined = b.reshape(b.permute(b.unary(Op::kExp, x), {1, 0, 2}), {3, 8});
  const Graph graph = sunk(b, b.reshape(b.permute(joined, {1, 0}), {24}));
  EXPECT_EQ(output_of(graph).op, Op::kExp) << print(graph);
}

TEST(SinkViews, WhatNoOutputNeedsIsNotBuilt) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {8});
  b.unary(Op::kCos, x);
  const Graph graph = sunk(b, b.unary(Op::kExp, x));
  EXPECT_EQ(graph.size(), 2) << print(graph);
}

}  // namespace
}  // namespace kiln
