#include "worker/runner/cuda/reference_slices.h"

#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"

namespace kiln::runner {
namespace {

std::vector<ReferenceSlices::Sizes> sizes_of(const Graph& graph) {
  std::vector<ReferenceSlices::Sizes> all;
  for (NodeId id = 0; id < graph.size(); ++id) {
    ReferenceSlices::Sizes sizes;
    for (const Dim& dim : graph.node(id).shape) sizes.push_back(dim.evaluate({}).value());
    all.push_back(std::move(sizes));
  }
  return all;
}

ReferenceSlices planned(const Graph& graph, int64_t limit) {
  return ReferenceSlices::plan(graph, sizes_of(graph), {}, limit).value();
}

// softmax(q k) v, of `heads` heads over `n` tokens.
struct Attention {
  Attention(int64_t heads, int64_t n, int64_t head_size) {
    const NodeId q = b.input(DType::kF32, {heads, n, head_size}),
                 k = b.input(DType::kF32, {heads, head_size, n}),
                 v = b.input(DType::kF32, {heads, n, head_size});
    scores = b.matmul(q, k);
    greatest = b.reduce(Op::kReduceMax, scores, {2});
    const NodeId shifted = b.binary(Op::kSub, scores, spread(greatest, heads, n));
    const NodeId weights = b.unary(Op::kExp, shifted);
    const NodeId sum = b.reduce(Op::kReduceSum, weights, {2});
    const NodeId share = b.binary(Op::kDiv, weights, spread(sum, heads, n));
    out = b.matmul(share, v);
    graph = b.finish({out}).value();
  }
  NodeId spread(NodeId x, int64_t heads, int64_t n) {
    return b.view(x, {heads, n, n}, {n, 1, 0}, 0);
  }
  GraphBuilder b;
  NodeId scores, greatest, out;
  Graph graph;
};

TEST(ReferenceSlices, SmallNodesAreHeldWhole) {
  const Attention a(2, 8, 4);
  const ReferenceSlices slices = planned(a.graph, 1000);
  for (NodeId id = 0; id < a.graph.size(); ++id) {
    EXPECT_TRUE(slices.whole(id));
    ASSERT_EQ(slices.slices(id).size(), 1u);
    EXPECT_TRUE(slices.slices(id)[0].before.empty());
  }
}

TEST(ReferenceSlices, ScoresAreComputedForSomeRowsOfTheResult) {
  const Attention a(3, 16, 4);
  const ReferenceSlices slices = planned(a.graph, 100);  // 6 rows of scores
  EXPECT_FALSE(slices.whole(a.scores));
  EXPECT_FALSE(slices.whole(a.greatest)) << "would be computed from slices of its own";
  EXPECT_TRUE(slices.whole(a.out));
  int64_t covered = 0;
  for (const auto& slice : slices.slices(a.out)) {
    EXPECT_EQ(slice.part.begin, covered);
    EXPECT_EQ(slice.part.begin % 4, 0) << "whole rows of the result";
    covered = slice.part.end;
    ASSERT_FALSE(slice.before.empty());
    for (const auto& [node, part] : slice.before) {
      EXPECT_FALSE(slices.whole(node));
      EXPECT_LE(part.count(), 100);
    }
    // The rows of the result are those of the scores.
    const auto scores = std::find_if(slice.before.begin(), slice.before.end(),
                                     [&](const auto& need) { return need.first == a.scores; });
    ASSERT_NE(scores, slice.before.end());
    EXPECT_EQ(scores->second, (Interval{slice.part.begin / 4 * 16, slice.part.end / 4 * 16}));
  }
  EXPECT_EQ(covered, 3 * 16 * 4);
}

TEST(ReferenceSlices, WhatIsReadInAnotherOrderIsHeldWhole) {
  GraphBuilder b;
  const NodeId x = b.unary(Op::kExp, b.input(DType::kF32, {40, 40}));
  const NodeId columns = b.reduce(Op::kReduceSum, x, {0});
  const NodeId running = b.scan_sum(b.unary(Op::kNeg, x), 0);
  const Graph graph = b.finish({b.unary(Op::kNeg, columns), running}).value();
  const ReferenceSlices slices = planned(graph, 100);
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (graph.node(id).op == Op::kExp) {
      EXPECT_TRUE(slices.whole(id)) << "a sum of columns reads nearly all";
    }
    if (graph.node(id).op == Op::kScanSum) {
      EXPECT_TRUE(slices.whole(graph.node(id).operands[0])) << "a scan reads its input whole";
    }
  }
}

TEST(ReferenceSlices, ViewsReadTheHullOfTheirElements) {
  GraphBuilder b;
  const NodeId x = b.unary(Op::kExp, b.input(DType::kF32, {30, 10}));
  // Rows backwards, every second element.
  const NodeId y = b.view(x, {30, 5}, {-10, 2}, 290);
  const Graph graph = b.finish({b.unary(Op::kNeg, y)}).value();
  const ReferenceSlices slices = planned(graph, 60);
  const NodeId out = graph.outputs()[0];
  const auto& last = slices.slices(out).back();
  EXPECT_EQ(last.part.end, 150);
  const auto read = std::find_if(last.before.begin(), last.before.end(), [&](const auto& need) {
    return graph.node(need.first).op == Op::kExp;
  });
  ASSERT_NE(read, last.before.end());
  const int64_t rows = last.part.count() / 5;
  EXPECT_EQ(read->second, (Interval{0, (rows - 1) * 10 + 9}));
}

TEST(ReferenceSlices, NothingIsASlice) {
  GraphBuilder b;
  const NodeId x = b.unary(Op::kExp, b.input(DType::kF32, {0, 10}));
  const Graph graph =
      b.finish({b.reduce(Op::kReduceSum, x, {1}), b.reduce(Op::kReduceSum, x, {0})}).value();
  const ReferenceSlices slices = planned(graph, 1);
  for (NodeId id = 0; id < graph.size(); ++id)
    for (const auto& slice : slices.slices(id))
      for (const auto& [node, part] : slice.before) EXPECT_GE(part.count(), 0);
}

}  // namespace
}  // namespace kiln::runner
