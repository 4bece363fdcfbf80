#include "compiler_core/plan/shape_generic_key.h"

#include <gtest/gtest.h>

#include <cmath>

#include "compiler_core/ir/builder.h"

namespace kiln {
namespace {

ShapeGenericKey key_of(GraphBuilder& builder, NodeId output) {
  auto graph = builder.finish({output});
  EXPECT_TRUE(graph) << graph.error().message;
  auto made = make_workload(*graph);
  EXPECT_TRUE(made) << made.error().message;
  return shape_generic_key(made->workload);
}

// relu(a x b + bias), [m, k] x [k, n].
ShapeGenericKey matmul(int64_t m, int64_t n, int64_t k, DType dtype = DType::kF32) {
  GraphBuilder p;
  const NodeId a = p.input(dtype, {m, k}), b = p.input(dtype, {k, n}), bias = p.input(dtype, {n});
  const NodeId sum = p.binary(Op::kAdd, p.matmul(a, b), p.broadcast(bias, {m, n}));
  return key_of(p, p.binary(Op::kMax, sum, p.broadcast(p.constant(dtype, 0), {m, n})));
}

ShapeGenericKey mean(const Dim& rows, int64_t columns, Op op, GraphBuilder& p) {
  const NodeId x = p.input(DType::kF32, {rows, columns});
  const NodeId total = p.reduce(op, x, {1});
  const NodeId divisor = p.constant(DType::kF32, static_cast<double>(columns));
  return key_of(p, p.binary(Op::kDiv, total, p.broadcast(divisor, {rows})));
}
ShapeGenericKey mean(int64_t rows, int64_t columns, Op op = Op::kReduceSum) {
  GraphBuilder builder;
  return mean(rows, columns, op, builder);
}

TEST(ShapeGenericKey, DiffersInSizesOnlyWhereTheKernelsDo) {
  const ShapeGenericKey square = matmul(1024, 1024, 1024);
  for (const auto& [m, n, k] : {std::tuple{1024, 1040, 1024}, {17, 33, 5}, {3, 2000, 64}}) {
    const ShapeGenericKey other = matmul(m, n, k);
    EXPECT_EQ(other.digest, square.digest) << m << " " << n << " " << k;
    EXPECT_NE(other.sizes, square.sizes);
    EXPECT_EQ(other.sizes.size(), square.sizes.size());
  }
  EXPECT_EQ(mean(64, 100).digest, mean(7, 300).digest) << "the divisor follows from the size";
}

TEST(ShapeGenericKey, KernelsOfOtherOpsDtypesOrFamiliesAreNone) {
  EXPECT_NE(matmul(64, 64, 64).digest, matmul(64, 64, 64, DType::kF64).digest);
  EXPECT_NE(mean(64, 64).digest, mean(64, 64, Op::kReduceMax).digest);
  EXPECT_NE(matmul(64, 64, 64).digest, mean(64, 64).digest);
}

TEST(ShapeGenericKey, ASymbolCountsWithItsHint) {
  GraphBuilder builder;
  const Dim rows = Dim::symbol(builder.symbol({1, 4096}, 31));
  EXPECT_EQ(mean(rows, 100, Op::kReduceSum, builder), mean(31, 100));
}

TEST(ShapeGenericKey, DistanceIsInDoublings) {
  const std::vector<int64_t> a = {1024, 64}, b = {2048, 32}, near = {1024, 65};
  EXPECT_EQ(distance(a, a), 0);
  EXPECT_DOUBLE_EQ(distance(a, b), 2);
  EXPECT_LT(distance(a, near), 0.1);
  EXPECT_TRUE(std::isinf(distance(a, std::vector<int64_t>{1024})));
  EXPECT_TRUE(std::isfinite(distance(std::vector<int64_t>{0}, std::vector<int64_t>{8})));
}

}  // namespace
}  // namespace kiln
