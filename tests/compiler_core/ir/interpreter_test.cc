#include "compiler_core/ir/interpreter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler_core/ir/builder.h"

namespace kiln {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor tensor(DType dtype, std::vector<int64_t> sizes, std::vector<double> values) {
  Tensor result(dtype, std::move(sizes));
  for (size_t i = 0; i < values.size(); ++i) result.set(static_cast<int64_t>(i), values[i]);
  return result;
}

// The only output of the graph that `make` builds on one input.
template <class Make>
std::vector<double> evaluate(const Tensor& input, Make make,
                             Precision precision = Precision::kDeclared) {
  GraphBuilder builder;
  const NodeId x = builder.input(input.dtype(), {input.sizes().begin(), input.sizes().end()});
  auto graph = builder.finish({make(builder, x)});
  EXPECT_TRUE(graph) << graph.error().message;
  const Tensor* inputs[] = {&input};
  const auto outputs = interpret(*graph, inputs, precision);
  EXPECT_TRUE(outputs) << outputs.error().message;
  std::vector<double> values;
  for (int64_t i = 0; i < (*outputs)[0].numel(); ++i) values.push_back((*outputs)[0].get(i));
  return values;
}

using V = std::vector<double>;

TEST(Interpreter, MaxAndMinPropagateNaN) {
  const Tensor x = tensor(DType::kF32, {3}, {1, kNaN, -2});
  const auto value = evaluate(x, [](GraphBuilder& b, NodeId n) {
    return b.binary(Op::kMax, n, b.broadcast(b.constant(DType::kF32, 0), {3}));
  });
  EXPECT_EQ(value[0], 1);
  EXPECT_TRUE(std::isnan(value[1]));
  EXPECT_EQ(value[2], 0);
  EXPECT_TRUE(std::isnan(
      evaluate(x, [](GraphBuilder& b, NodeId n) { return b.reduce(Op::kReduceMax, n, {0}); })[0]));
}

TEST(Interpreter, ReductionsOfNothingAreTheNeutralElement) {
  const Tensor x = tensor(DType::kF32, {2, 0}, {});
  EXPECT_EQ(evaluate(x, [](GraphBuilder& b, NodeId n) { return b.reduce(Op::kReduceSum, n, {1}); }),
            (V{0, 0}));
  EXPECT_EQ(evaluate(x, [](GraphBuilder& b, NodeId n) { return b.reduce(Op::kReduceMax, n, {1}); }),
            (V{-kInf, -kInf}));
}

TEST(Interpreter, HalfTypesRoundAtEveryNode) {
  // 1 + 2^-9 is lost in bf16, so that adding it twice adds nothing.
  const Tensor x = tensor(DType::kBF16, {1}, {1});
  const auto twice = [](GraphBuilder& b, NodeId n) {
    const NodeId tiny = b.broadcast(b.constant(DType::kBF16, 0x1p-9), {1});
    return b.binary(Op::kAdd, b.binary(Op::kAdd, n, tiny), tiny);
  };
  EXPECT_EQ(evaluate(x, twice), (V{1}));
  EXPECT_EQ(evaluate(x, twice, Precision::kHigh), (V{1}));
}

TEST(Interpreter, HighPrecisionKeepsWhatF32Loses) {
  const Tensor x = tensor(DType::kF32, {1}, {1});
  const auto cancel = [](GraphBuilder& b, NodeId n) {
    const NodeId big = b.broadcast(b.constant(DType::kF32, 0x1p30), {1});
    return b.binary(Op::kSub, b.binary(Op::kAdd, n, big), big);
  };
  EXPECT_EQ(evaluate(x, cancel), (V{0}));
  EXPECT_EQ(evaluate(x, cancel, Precision::kHigh), (V{1}));
}

TEST(Interpreter, IntegersWrapAndTruncate) {
  const Tensor x = tensor(DType::kI8, {3}, {127, -7, 7});
  EXPECT_EQ(evaluate(x, [](GraphBuilder& b, NodeId n) { return b.binary(Op::kAdd, n, n); }),
            (V{-2, -14, 14}));
  EXPECT_EQ(evaluate(x,
                     [](GraphBuilder& b, NodeId n) {
                       return b.binary(Op::kDiv, n,
                                       b.broadcast(b.constant_int(DType::kI8, 2), {3}));
                     }),
            (V{63, -3, 3}));
}

TEST(Interpreter, ReducesScansPadsConcatenatesAndGathers) {
  const Tensor x = tensor(DType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(evaluate(x, [](GraphBuilder& b, NodeId n) { return b.reduce(Op::kReduceSum, n, {0}); }),
            (V{5, 7, 9}));
  EXPECT_EQ(
      evaluate(x, [](GraphBuilder& b, NodeId n) { return b.reduce(Op::kReduceMin, n, {1}, true); }),
      (V{1, 4}));
  EXPECT_EQ(evaluate(x, [](GraphBuilder& b, NodeId n) { return b.scan_sum(n, 0); }),
            (V{1, 2, 3, 5, 7, 9}));
  EXPECT_EQ(evaluate(x, [](GraphBuilder& b, NodeId n) { return b.scan_sum(n, 1); }),
            (V{1, 3, 6, 4, 9, 15}));
  EXPECT_EQ(evaluate(x,
                     [](GraphBuilder& b, NodeId n) {
                       return b.pad(b.slice(n, 0, 0, 1), {Dim(1), Dim(0)}, {Dim(0), Dim(1)},
                                    constant_bits(DType::kF32, 9));
                     }),
            (V{9, 9, 9, 9, 1, 2, 3, 9}));
  EXPECT_EQ(evaluate(x,
                     [](GraphBuilder& b, NodeId n) {
                       const NodeId parts[] = {b.slice(n, 1, 2, 1), b.slice(n, 1, 0, 2)};
                       return b.concat(parts, 1);
                     }),
            (V{3, 1, 2, 6, 4, 5}));
  EXPECT_EQ(evaluate(x,
                     [](GraphBuilder& b, NodeId n) {
                       const NodeId last = b.broadcast(b.constant_int(DType::kI64, -1), {1});
                       return b.gather(n, last);
                     }),
            (V{4, 5, 6}));
}

TEST(Interpreter, MultipliesBatchesOfMatrices) {
  const Tensor x = tensor(DType::kBF16, {2, 2, 2}, {1, 2, 3, 4, 0, 1, 1, 0});
  GraphBuilder b;
  const NodeId n = b.input(DType::kBF16, {2, 2, 2});
  const NodeId product = b.matmul(n, b.permute(n, {0, 2, 1}));
  EXPECT_EQ(b.dtype(product), DType::kF32);
  auto graph = b.finish({product});
  ASSERT_TRUE(graph);
  const Tensor* inputs[] = {&x};
  const auto out = interpret(*graph, inputs);
  ASSERT_TRUE(out);
  const auto values = (*out)[0].as<float>();
  EXPECT_EQ(std::vector<float>(values.begin(), values.end()),
            (std::vector<float>{5, 11, 11, 25, 1, 0, 0, 1}));
}

TEST(Interpreter, SymbolsAreBoundFromTheInputs) {
  GraphBuilder b;
  const Dim s = Dim::symbol(b.symbol({1, 8}, 4));
  const NodeId x = b.input(DType::kF32, {s, 2});
  auto graph = b.finish({b.reshape(x, {s * Dim(2)})});
  ASSERT_TRUE(graph);
  const auto run = [&](std::vector<int64_t> sizes) {
    const Tensor input(DType::kF32, std::move(sizes));
    const Tensor* inputs[] = {&input};
    return interpret(*graph, inputs);
  };
  EXPECT_EQ((*run({3, 2}))[0].sizes(), (std::vector<int64_t>{6}));
  EXPECT_EQ(run({9, 2}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(run({3, 3}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(run({3}).error().code, Code::kInvalidArgument);
}

TEST(Interpreter, InputsThatDoNotFitAreNamed) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {4});
  auto graph = b.finish({x});
  ASSERT_TRUE(graph);
  const Tensor wrong(DType::kF64, {4});
  const Tensor* inputs[] = {&wrong};
  const auto out = interpret(*graph, inputs);
  ASSERT_FALSE(out);
  EXPECT_NE(out.error().message.find("f64[4]"), std::string::npos) << out.error().message;
  EXPECT_FALSE(interpret(*graph, {}));
}

}  // namespace
}  // namespace kiln
