#include "compiler_core/ir/builder.h"

#include <gtest/gtest.h>

#include "compiler_core/ir/verify.h"

namespace kiln {
namespace {

TEST(Builder, EqualNodesAreOneNode) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {4});
  EXPECT_EQ(b.unary(Op::kSin, x), b.unary(Op::kSin, x));
  EXPECT_NE(b.unary(Op::kSin, x), b.unary(Op::kCos, x));
  EXPECT_EQ(b.constant(DType::kBF16, 1.0 + 0x1p-12), b.constant(DType::kBF16, 1.0));
  EXPECT_NE(b.constant(DType::kF32, 0.0), b.constant(DType::kF32, -0.0));
  EXPECT_NE(b.input(DType::kF32, {4}), x);
}

TEST(Builder, TheFirstMistakeSticks) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {4});
  const NodeId y = b.input(DType::kF32, {5});
  const NodeId bad = b.binary(Op::kAdd, x, y);
  EXPECT_EQ(bad, kInvalidNode);
  EXPECT_EQ(b.unary(Op::kExp, bad), kInvalidNode);
  const auto graph = b.finish({x});
  ASSERT_FALSE(graph);
  EXPECT_NE(graph.error().message.find("add f32[4] of f32[4], f32[5]"), std::string::npos)
      << graph.error().message;
}

TEST(Builder, RulesOfEveryOpAreChecked) {
  const auto refused = [](auto make) {
    GraphBuilder b;
    const NodeId f = b.input(DType::kF32, {4, 6});
    const NodeId i = b.input(DType::kI64, {4, 6});
    const NodeId t = b.input(DType::kBool, {4, 6});
    make(b, f, i, t);
    return !b.ok();
  };
  using B = GraphBuilder;
  EXPECT_TRUE(refused([](B& b, NodeId f, NodeId i, NodeId) { b.binary(Op::kAdd, f, i); }));
  EXPECT_TRUE(refused([](B& b, NodeId, NodeId i, NodeId) { b.unary(Op::kExp, i); }));
  EXPECT_TRUE(refused([](B& b, NodeId f, NodeId, NodeId) { b.unary(Op::kNot, f); }));
  EXPECT_TRUE(refused([](B& b, NodeId, NodeId, NodeId t) { b.unary(Op::kNeg, t); }));
  EXPECT_TRUE(refused([](B& b, NodeId, NodeId, NodeId t) { b.binary(Op::kAdd, t, t); }));
  EXPECT_TRUE(refused([](B& b, NodeId f, NodeId, NodeId) { b.binary(Op::kAnd, f, f); }));
  EXPECT_TRUE(refused([](B& b, NodeId f, NodeId i, NodeId) { b.select(i, f, f); }));
  EXPECT_TRUE(refused([](B& b, NodeId f, NodeId i, NodeId t) { b.select(t, f, i); }));
  EXPECT_TRUE(refused([](B& b, NodeId f, NodeId, NodeId) { b.reduce(Op::kReduceSum, f, {2}); }));
  EXPECT_TRUE(refused([](B& b, NodeId f, NodeId, NodeId) { b.reduce(Op::kReduceSum, f, {0, 0}); }));
  EXPECT_TRUE(refused([](B& b, NodeId f, NodeId, NodeId) { b.matmul(f, f); }));
  EXPECT_TRUE(refused([](B& b, NodeId f, NodeId, NodeId) { b.gather(f, f); }));
  EXPECT_TRUE(refused([](B& b, NodeId f, NodeId i, NodeId) {
    const NodeId both[] = {f, i};
    b.concat(both, 0);
  }));
  EXPECT_TRUE(refused([](B& b, NodeId f, NodeId, NodeId) { b.scan_sum(f, 2); }));
  EXPECT_TRUE(refused([](B& b, NodeId f, NodeId, NodeId) {
    b.pad(f, {Dim(-1), Dim(0)}, {Dim(0), Dim(0)}, {});
  }));
  EXPECT_TRUE(refused([](B& b, NodeId f, NodeId, NodeId) { b.broadcast(f, {4, 7}); }));
}

TEST(Builder, SizesWhoseProductOverflowsAreRefused) {
  GraphBuilder b;
  b.input(DType::kF32, {int64_t{1} << 40, int64_t{1} << 40});
  EXPECT_FALSE(b.ok());
}

TEST(Builder, ADeepChainIsNoProblem) {
  GraphBuilder b;
  NodeId x = b.input(DType::kF32, {4});
  for (int i = 0; i < 100'000; ++i) x = b.unary(i % 2 == 0 ? Op::kSin : Op::kCos, x);
  const auto graph = b.finish({x});
  ASSERT_TRUE(graph);
  EXPECT_TRUE(verify(*graph));
}

}  // namespace
}  // namespace kiln
