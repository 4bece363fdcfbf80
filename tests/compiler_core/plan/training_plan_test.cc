// What steps of training are cut into: gradients are computed once, in one order, and nothing is stored
// that is made of less.
#include <gtest/gtest.h>

#include <map>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/plan.h"
#include "tests/compiler_core/plan/run_plan.h"

namespace kiln {
namespace {

constexpr int64_t kTokens = 64, kWidth = 32, kHidden = 48;

Graph normal_form(GraphBuilder& b, std::vector<NodeId> outputs) {
  const auto graph = b.finish(std::move(outputs));
  EXPECT_TRUE(graph.has_value());
  const auto form = normalise(*graph);
  EXPECT_TRUE(form.has_value());
  return form->graph;
}

NodeId half(GraphBuilder& b, NodeId x) {
  return b.cast(x, DType::kBF16);
}
NodeId wide(GraphBuilder& b, NodeId x) {
  return b.cast(x, DType::kF32);
}
NodeId product(GraphBuilder& b, NodeId x, NodeId y) {
  return half(b, b.matmul(x, y));
}

// How many kernels of each family, in the order of their names.
std::map<std::string, int> kernels_of(const Plan& plan) {
  std::map<std::string, int> counts;
  for (const Launch& launch : plan.launches)
    ++counts[std::string(to_string(plan.kernels[static_cast<size_t>(launch.kernel)].family))];
  return counts;
}

// A layer's gradient goes through an activation into three: those of its bias, its weights and its input.
TEST(TrainingPlan, AGradientIsComputedOnceForItsTranspose) {
  GraphBuilder b;
  const NodeId above = b.input(DType::kBF16, {kTokens, kWidth}),
               weights_above = b.input(DType::kBF16, {kWidth, kHidden}),
               before = b.input(DType::kBF16, {kTokens, kHidden}),
               x = b.input(DType::kBF16, {kTokens, kWidth}),
               weights = b.input(DType::kBF16, {kHidden, kWidth});
  const NodeId slope = b.unary(Op::kTanh, wide(b, before));
  const NodeId gradient =
      half(b, b.binary(Op::kMul, wide(b, product(b, above, weights_above)), slope));
  const NodeId bias = half(b, b.reduce(Op::kReduceSum, wide(b, gradient), {0}));
  const Graph graph = normal_form(
      b, {bias, product(b, b.permute(gradient, {1, 0}), x), product(b, gradient, weights)});
  const auto plan = kiln::plan(graph);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(kernels_of(*plan),
            (std::map<std::string, int>{{"column_reduction", 1}, {"matmul", 3}}));
}

// q, k and v are parts of one product: their gradients, joined, are one kernel's.
TEST(TrainingPlan, GradientsOfPartsAreJoinedWhereTheyAreStored) {
  GraphBuilder b;
  const int64_t heads = 2, width = kWidth / 2;
  NodeId sum = kInvalidNode;
  for (int64_t i = 0; i < 3; ++i) {
    const NodeId part = b.input(DType::kBF16, {1, heads, kTokens, width});
    const NodeId pad = b.pad(part, {Dim(i), 0, 0, 0}, {Dim(2 - i), 0, 0, 0}, ConstantAttr{0});
    sum = sum == kInvalidNode ? pad : half(b, b.binary(Op::kAdd, wide(b, sum), wide(b, pad)));
  }
  const NodeId joined = b.reshape(b.permute(sum, {2, 0, 1, 3}), {kTokens, 3 * kWidth});
  const NodeId x = b.input(DType::kBF16, {kTokens, kWidth}),
               weights = b.input(DType::kBF16, {3 * kWidth, kWidth});
  const NodeId bias = half(b, b.reduce(Op::kReduceSum, wide(b, joined), {0}));
  const Graph graph =
      normal_form(b, {bias, product(b, b.permute(joined, {1, 0}), x), product(b, joined, weights)});
  const auto plan = kiln::plan(graph);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(kernels_of(*plan),
            (std::map<std::string, int>{{"column_reduction", 1}, {"matmul", 2}, {"pointwise", 1}}));
}

// The gradient of a norm: sums over rows and over columns of the same few values of halves.
TEST(TrainingPlan, ANormsGradientReadsHalvesTwice) {
  GraphBuilder b;
  const Shape shape = {8, kTokens, kWidth};
  const NodeId above = b.input(DType::kBF16, {8 * kTokens, kHidden}),
               weights_above = b.input(DType::kBF16, {kHidden, kWidth});
  const NodeId gradient = wide(b, b.reshape(product(b, above, weights_above), shape));
  const auto of_rows = [&](NodeId x) { return wide(b, b.broadcast(x, shape)); };
  const NodeId x = b.input(DType::kBF16, shape), mean = b.input(DType::kBF16, {8, kTokens, 1}),
               scale = b.input(DType::kBF16, {8, kTokens, 1}),
               weight = wide(b, b.broadcast(b.input(DType::kBF16, {kWidth}), shape));
  const auto mul = [&](NodeId p, NodeId q) { return b.binary(Op::kMul, p, q); };
  const auto sub = [&](NodeId p, NodeId q) { return b.binary(Op::kSub, p, q); };
  const auto mean_of = [&](NodeId p) {
    const NodeId sum = b.reduce(Op::kReduceSum, p, {2}, true);
    return b.broadcast(
        mul(sum, b.broadcast(b.constant(DType::kF32, 1.0 / kWidth), Shape(b.shape(sum)))), shape);
  };
  const NodeId normal = mul(sub(wide(b, x), of_rows(mean)), of_rows(scale));
  const NodeId weighted = mul(gradient, weight);
  const NodeId rest =
      sub(sub(weighted, mean_of(weighted)), mul(normal, mean_of(mul(weighted, normal))));
  const NodeId result = half(b, mul(of_rows(scale), rest));
  const NodeId flat = b.reshape(result, {8 * kTokens, kWidth});
  const Graph graph =
      normal_form(b, {half(b, b.reduce(Op::kReduceSum, mul(gradient, normal), {0, 1})),
                      half(b, b.reduce(Op::kReduceSum, gradient, {0, 1})),
                      product(b, b.permute(flat, {1, 0}), above)});
  const auto parts = partition(graph, {});
  ASSERT_TRUE(parts.has_value());
  for (NodeId id = 0; id < parts->graph.size(); ++id) {
    const Node& node = parts->graph.node(id);
    EXPECT_FALSE(parts->stored[id] && node.dtype == DType::kF32 &&
                 numel(node.shape) == Dim(8 * kTokens * kWidth))
        << id << "\n"
        << print(parts->graph);
  }
}

// What all heads share is stored as it is, not once a head.
TEST(TrainingPlan, WhatIsRepeatedIsStoredOnce) {
  GraphBuilder b;
  const NodeId table = b.input(DType::kBF16, {40}), index = b.input(DType::kI64, {kTokens, kWidth});
  const Shape shape = {16, kTokens, kWidth};
  const NodeId mask = wide(b, b.broadcast(b.gather(table, index), shape));
  const NodeId scores = b.input(DType::kF32, shape);
  const NodeId most = b.broadcast(b.reduce(Op::kReduceMax, scores, {2}, true), shape);
  const NodeId masked = b.binary(Op::kMul, b.binary(Op::kSub, scores, most), mask);
  const Graph graph = normal_form(b, {b.reduce(Op::kReduceSum, masked, {2})});
  const auto parts = partition(graph, {});
  ASSERT_TRUE(parts.has_value());
  for (NodeId id = 0; id < parts->graph.size(); ++id) {
    if (!parts->stored[id]) continue;
    EXPECT_LE(numel(parts->graph.node(id).shape).constant(), kTokens * kWidth)
        << print(parts->graph);
  }
}

}  // namespace
}  // namespace kiln
