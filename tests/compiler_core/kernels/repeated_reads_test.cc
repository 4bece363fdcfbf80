#include "compiler_core/kernels/analysis/repeated_reads.h"

#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/kernels/registry.h"

namespace kiln {
namespace {

constexpr int64_t kRows = 4096, kColumns = 512;
constexpr int64_t kElements = kRows * kColumns;

Graph finished(GraphBuilder& b, NodeId output) {
  auto graph = b.finish({output});
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  return *std::move(graph);
}

TEST(RepeatedReads, WhatIsReadInOrderIsReadOnce) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kBF16, {kRows, kColumns}), y = b.unary(Op::kSin, x);
  const NodeId row = b.input(DType::kBF16, {kColumns});
  const NodeId z = b.view(row, {kRows, kColumns}, {0, 1}, 0);
  EXPECT_EQ(bytes_read_again(finished(b, b.binary(Op::kMul, b.binary(Op::kAdd, y, x), z))), 0);
}

TEST(RepeatedReads, ElementsAcrossTheGrainAreASectorEach) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {kColumns, kRows});
  const NodeId turned = b.view(x, {kRows, kColumns}, {1, kRows}, 0);
  EXPECT_EQ(bytes_read_again(finished(b, b.unary(Op::kSin, turned))), kElements * (32 - 4));
}

TEST(RepeatedReads, WindowsThatOverlapAreReadAgain) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {kRows, kColumns});
  NodeId sum = b.view(x, {kRows - 2, kColumns}, {kColumns, 1}, 0);
  for (int64_t k = 1; k < 3; ++k)
    sum = b.binary(Op::kAdd, sum, b.view(x, {kRows - 2, kColumns}, {kColumns, 1}, k * kColumns));
  EXPECT_EQ(bytes_read_again(finished(b, sum)), (3 * (kRows - 2) - kRows) * kColumns * 4);
}

TEST(RepeatedReads, WhatIsRepeatedAtAGreatDistanceIsReadAgain) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {kColumns, 64});
  const NodeId far = b.view(x, {8, kColumns, 64}, {0, 64, 1}, 0);
  EXPECT_EQ(bytes_read_again(finished(b, b.unary(Op::kSin, far))), 7 * kColumns * 64 * 4);
  GraphBuilder c;
  const NodeId y = c.input(DType::kF32, {kColumns, 64});
  const NodeId near = c.view(y, {kColumns, 8, 64}, {64, 0, 1}, 0);
  EXPECT_EQ(bytes_read_again(finished(c, c.unary(Op::kSin, near))), 0);
}

TEST(RepeatedReads, AKernelThatNeedsTheCacheWaitsForItsTurn) {
  const auto begins_early = [](const Graph& graph) {
    const Target target = *Target::parse("cuda:sm_90a");
    const Workload workload{graph, Family::kPointwise, {}};
    const auto space = search_space(workload, target);
    const auto made = lower(workload, space->at(0), target);
    EXPECT_TRUE(made.has_value());
    return std::get<Source>(*made).recipe.phases.at(0).dependent_launch == DependentLaunch::kAtOnce;
  };
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {kRows, kColumns});
  EXPECT_TRUE(begins_early(finished(b, b.unary(Op::kSin, x))));
  GraphBuilder c;
  const NodeId y = c.input(DType::kF32, {kColumns, kRows});
  EXPECT_FALSE(
      begins_early(finished(c, c.unary(Op::kSin, c.view(y, {kRows, kColumns}, {1, kRows}, 0)))));
}

}  // namespace
}  // namespace kiln
