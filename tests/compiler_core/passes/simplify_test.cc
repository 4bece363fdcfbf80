#include "compiler_core/passes/passes.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"

namespace kiln {
namespace {

using Expression = std::function<NodeId(GraphBuilder&, NodeId)>;

Graph simplified(DType dtype, const Expression& expression) {
  GraphBuilder b;
  const NodeId x = b.input(dtype, {4});
  const NodeId result = expression(b, x);
  auto graph = b.finish({result});
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  if (!graph) return {};
  auto after = simplify(*graph);
  EXPECT_TRUE(after.has_value()) << after.error().message;
  return after ? *std::move(after) : Graph();
}

NodeId filled_like(GraphBuilder& b, double value, NodeId like) {
  return b.broadcast(b.constant(b.dtype(like), value), Shape(b.shape(like)));
}

void expect_becomes(const Expression& before, const Expression& after, DType dtype = DType::kF32) {
  const Graph actual = simplified(dtype, before);
  GraphBuilder b;
  const NodeId x = b.input(dtype, {4});
  const NodeId result = after(b, x);
  const auto expected = b.finish({result});
  ASSERT_TRUE(expected.has_value());
  // Compared from the output: the rewritten graph may keep nodes that nothing needs.
  const auto lean = simplify(actual), lean_expected = simplify(*expected);
  ASSERT_TRUE(lean && lean_expected);
  EXPECT_EQ(print(*simplify(*lean)), print(*simplify(*lean_expected)));
}
void expect_stays(const Expression& expression, DType dtype = DType::kF32) {
  const Graph actual = simplified(dtype, expression);
  GraphBuilder b;
  const NodeId result = expression(b, b.input(dtype, {4}));
  EXPECT_EQ(actual.node(actual.outputs()[0]).op, b.node(result).op) << print(actual);
}

const Expression kItself = [](GraphBuilder&, NodeId x) { return x; };
Expression with(Op op, double value) {
  return [=](GraphBuilder& b, NodeId x) { return b.binary(op, x, filled_like(b, value, x)); };
}
Expression alone(Op op) {
  return [=](GraphBuilder& b, NodeId x) { return b.unary(op, x); };
}

TEST(Simplify, RemovesWhatChangesNothing) {
  expect_becomes(with(Op::kMul, 1), kItself);
  expect_becomes(with(Op::kDiv, 1), kItself);
  expect_becomes(with(Op::kSub, 0), kItself);
  expect_becomes(with(Op::kAdd, -0.0), kItself);
  expect_becomes(with(Op::kAdd, 0), kItself, DType::kI64);
  expect_becomes(with(Op::kPow, 1), kItself);
  expect_becomes([](GraphBuilder& b, NodeId x) { return b.unary(Op::kNeg, b.unary(Op::kNeg, x)); },
                 kItself);
  expect_becomes([](GraphBuilder& b, NodeId x) { return b.binary(Op::kMax, x, x); }, kItself);
}

TEST(Simplify, KeepsWhatWouldChangeABit) {
  expect_stays(with(Op::kAdd, 0));  // -0 + 0 is 0
  expect_stays(with(Op::kMul, 0));  // NaN * 0 is NaN
  expect_stays(with(Op::kDiv, 3));  // 1/3 is rounded
  expect_stays([](GraphBuilder& b, NodeId x) { return b.binary(Op::kSub, x, x); });
  expect_stays(with(Op::kDiv, 0));
  expect_stays(with(Op::kDiv, std::numeric_limits<double>::infinity()));
  expect_stays(with(Op::kDiv, 0x1p-140));  // its reciprocal is no f32
}

TEST(Simplify, HasOneSpellingForTheSameArithmetic) {
  expect_becomes(with(Op::kSub, 3), with(Op::kAdd, -3));
  expect_becomes(with(Op::kDiv, 4), with(Op::kMul, 0.25));
  expect_becomes(with(Op::kMul, -1), alone(Op::kNeg));
  expect_becomes(
      [](GraphBuilder& b, NodeId x) { return b.binary(Op::kDiv, filled_like(b, 1, x), x); },
      alone(Op::kReciprocal));
}

TEST(Simplify, PowersBecomeWhatPyTorchComputes) {
  expect_becomes(with(Op::kPow, 2),
                 [](GraphBuilder& b, NodeId x) { return b.binary(Op::kMul, x, x); });
  expect_becomes(with(Op::kPow, 0.5), alone(Op::kSqrt));
  expect_becomes(with(Op::kPow, -0.5), alone(Op::kRsqrt));
  expect_becomes(with(Op::kPow, -1), alone(Op::kReciprocal));
  expect_becomes(with(Op::kPow, 0), [](GraphBuilder& b, NodeId x) { return filled_like(b, 1, x); });
  expect_stays(with(Op::kPow, 2.5));
}

TEST(Simplify, FoldsConstantsInTheirOwnDtype) {
  const Graph graph = simplified(DType::kF32, [](GraphBuilder& b, NodeId x) {
    const NodeId sum = b.binary(Op::kAdd, filled_like(b, 0.1, x), filled_like(b, 0.2, x));
    return b.binary(Op::kAdd, x, sum);
  });
  const Node& sum = graph.node(graph.outputs()[0]);
  bool found = false;
  for (NodeId operand : sum.operands) {
    const Node& node = graph.node(operand);
    if (node.op != Op::kView) continue;
    const auto& value = std::get<ConstantAttr>(graph.node(node.operands[0]).attr);
    EXPECT_EQ(value.as_double(), 0.1f + 0.2f);
    found = true;
  }
  EXPECT_TRUE(found) << print(graph);
}

TEST(Simplify, DoesNotFoldWhatHasNoSpecifiedValue) {
  expect_stays(
      [](GraphBuilder& b, NodeId x) {
        return b.binary(Op::kDiv, filled_like(b, 3, x), filled_like(b, 0, x));
      },
      DType::kI64);
  expect_stays(
      [](GraphBuilder& b, NodeId x) { return b.cast(filled_like(b, 1e30, x), DType::kI32); });
}

Expression casts(std::vector<DType> chain) {
  return [=](GraphBuilder& b, NodeId x) {
    for (DType dtype : chain) x = b.cast(x, dtype);
    return x;
  };
}

TEST(Simplify, DropsConversionsThatLoseNothing) {
  expect_becomes(casts({DType::kF64, DType::kF32}), kItself);
  expect_becomes(casts({DType::kF32, DType::kBF16}), kItself, DType::kBF16);
  expect_becomes(casts({DType::kI64, DType::kF32}), casts({DType::kF32}), DType::kI32);
  expect_becomes(casts({DType::kI64, DType::kBool}), kItself, DType::kBool);
}

TEST(Simplify, KeepsConversionsThatRound) {
  const Graph graph = simplified(DType::kF32, casts({DType::kBF16, DType::kF32}));
  EXPECT_EQ(graph.size(), 3) << print(graph);
  EXPECT_EQ(simplified(DType::kI64, casts({DType::kF32, DType::kI64})).size(), 3);
  EXPECT_EQ(simplified(DType::kI64, casts({DType::kU8, DType::kI64})).size(), 3);
}

TEST(Simplify, HalvesConvertThroughF32Only) {
  const Graph graph = simplified(DType::kF16, casts({DType::kF32, DType::kBF16}));
  EXPECT_EQ(graph.size(), 3) << print(graph);
}

TEST(Simplify, DecidesSelects) {
  const auto chosen = [](bool condition) {
    return [=](GraphBuilder& b, NodeId x) {
      const NodeId c = b.broadcast(b.constant_int(DType::kBool, condition), Shape(b.shape(x)));
      return b.select(c, x, b.unary(Op::kExp, x));
    };
  };
  expect_becomes(chosen(true), kItself);
  expect_becomes(chosen(false), alone(Op::kExp));
}

TEST(Simplify, ReductionsOfOneElementAndOfNothing) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {1, 4}), nothing = b.input(DType::kF32, {0, 4});
  const NodeId one = b.reduce(Op::kReduceMax, x, {0});
  const NodeId none = b.reduce(Op::kReduceMax, nothing, {0});
  const auto graph = b.finish({one, none});
  ASSERT_TRUE(graph.has_value());
  const auto after = simplify(*graph);
  ASSERT_TRUE(after.has_value());
  EXPECT_EQ(after->node(after->outputs()[0]).op, Op::kView);
  const Node& filled = after->node(after->outputs()[1]);
  ASSERT_EQ(filled.op, Op::kView);
  EXPECT_EQ(std::get<ConstantAttr>(after->node(filled.operands[0]).attr).as_double(),
            -std::numeric_limits<double>::infinity());
}

TEST(Simplify, AReductionOfAReductionIsOne) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {2, 3, 4, 5});
  const NodeId twice = b.reduce(Op::kReduceSum, b.reduce(Op::kReduceSum, x, {1, 3}), {1});
  const auto graph = b.finish({twice});
  const auto after = simplify(*graph);
  ASSERT_TRUE(after.has_value());
  const Node& node = after->node(after->outputs()[0]);
  EXPECT_EQ(std::get<ReduceAttr>(node.attr).axes, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(after->node(node.operands[0]).op, Op::kInput);
}

TEST(Simplify, AMatmulOfWidenedHalvesIsAMatmulOfHalves) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kBF16, {2, 3}), y = b.input(DType::kBF16, {3, 4});
  const NodeId product = b.matmul(b.cast(x, DType::kF32), b.cast(y, DType::kF32));
  const auto graph = b.finish({product});
  const auto after = simplify(*graph);
  ASSERT_TRUE(after.has_value());
  const Node& node = after->node(after->outputs()[0]);
  EXPECT_EQ(node.dtype, DType::kF32);
  EXPECT_EQ(after->node(node.operands[0]).op, Op::kInput);
}

}  // namespace
}  // namespace kiln
