#include "compiler_core/passes/passes.h"

#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"

namespace kiln {
namespace {

Graph expanded(GraphBuilder& b, NodeId output) {
  auto graph = b.finish({output});
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  if (!graph) return {};
  auto after = expand_half(*graph);
  EXPECT_TRUE(after.has_value()) << after.error().message;
  return after ? *std::move(after) : Graph();
}

// No arithmetic on halves is left, and halves convert to and from f32 only.
void expect_only_moved(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    const bool computes = is_elementwise(node.op) || traits(node.op).kind == OpKind::kReduce;
    if (!computes) continue;
    for (NodeId operand : node.operands) {
      const DType from = graph.node(operand).dtype;
      if (node.op == Op::kCast) {
        EXPECT_TRUE(!is_half(from) || node.dtype == DType::kF32) << print(graph);
        EXPECT_TRUE(!is_half(node.dtype) || from == DType::kF32) << print(graph);
      } else {
        EXPECT_FALSE(is_half(from) || is_half(node.dtype)) << print(graph);
      }
    }
  }
}

TEST(ExpandHalf, ArithmeticComparisonsAndReductionsRunInF32) {
  for (const DType half : {DType::kBF16, DType::kF16}) {
    GraphBuilder b;
    const NodeId x = b.input(half, {4, 8}), y = b.input(half, {4, 8});
    const NodeId chosen = b.select(b.binary(Op::kLt, x, y), x, b.unary(Op::kExp, y));
    const Graph graph = expanded(b, b.reduce(Op::kReduceSum, chosen, {1}));
    expect_only_moved(graph);
    EXPECT_EQ(graph.node(graph.outputs()[0]).dtype, half);
  }
}

TEST(ExpandHalf, EveryRoundingStays) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kBF16, {4});
  const Graph graph = expanded(b, b.unary(Op::kExp, b.unary(Op::kSin, x)));
  int narrowings = 0;
  for (const Node& node : graph.nodes())
    narrowings += node.op == Op::kCast && node.dtype == DType::kBF16;
  EXPECT_EQ(narrowings, 2) << print(graph);
}

TEST(ExpandHalf, ConversionsGoThroughF32) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF16, {4});
  const NodeId integer = b.cast(b.cast(x, DType::kBF16), DType::kI64);
  expect_only_moved(expanded(b, b.cast(integer, DType::kF16)));
}

TEST(ExpandHalf, MovesAndMatmulsKeepTheirHalves) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kBF16, {4, 4});
  const Graph graph = expanded(b, b.matmul(x, b.permute(x, {1, 0})));
  for (const Node& node : graph.nodes()) EXPECT_NE(node.op, Op::kCast);
  EXPECT_EQ(graph.node(graph.outputs()[0]).dtype, DType::kF32);
}

}  // namespace
}  // namespace kiln
