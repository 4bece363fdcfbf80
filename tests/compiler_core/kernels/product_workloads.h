// Matrix products as workloads, for the tests of every template that makes them.
#pragma once

#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/plan/workload.h"

namespace kiln::testing {

// What the planner makes of the graph that ends in `output`.
inline Workload workload_of(GraphBuilder& b, NodeId output) {
  const auto graph = b.finish({output});
  EXPECT_TRUE(graph) << graph.error().message;
  auto made = make_workload(*graph);
  EXPECT_TRUE(made) << made.error().message << print(*graph);
  return made->workload;
}

// The same as it is written, for a product.
inline Workload matmul_workload(GraphBuilder& b, NodeId output) {
  auto graph = b.finish({output});
  EXPECT_TRUE(graph) << graph.error().message;
  return {*graph, Family::kMatmul, {}};
}

// [m, k] times [k, n], each stored so or read transposed; the sums are stored in halves of the
// operands' dtype, if that is what they are.
struct Stored {
  bool a_transposed = false, b_transposed = false;
};
inline Workload plain_product(DType dtype, int64_t m, int64_t n, int64_t k, Stored stored = {}) {
  GraphBuilder b;
  const NodeId x = b.input(dtype, stored.a_transposed ? Shape{k, m} : Shape{m, k});
  const NodeId w = b.input(dtype, stored.b_transposed ? Shape{n, k} : Shape{k, n});
  const NodeId y = b.matmul(stored.a_transposed ? b.permute(x, {1, 0}) : x,
                            stored.b_transposed ? b.permute(w, {1, 0}) : w);
  return matmul_workload(b, is_half(dtype) ? b.cast(y, dtype) : y);
}

// tanh(x w + bias) + residual of any number of rows: x is [rows, k], rounded to `stored`.
inline Workload product_of_any_rows(int64_t n, int64_t k, DType stored, int64_t hint) {
  GraphBuilder b;
  const Dim rows = Dim::symbol(b.symbol({0, 1 << 20}, hint)) * 2;
  const NodeId w = b.permute(b.input(DType::kBF16, {n, k}), {1, 0});
  const NodeId product = b.matmul(b.input(DType::kBF16, {rows, k}), w);
  const NodeId bias = b.broadcast(b.input(DType::kF32, {n}), {rows, n});
  const NodeId residual = b.cast(b.input(DType::kBF16, {rows, n}), DType::kF32);
  const NodeId y =
      b.binary(Op::kAdd, b.unary(Op::kTanh, b.binary(Op::kAdd, product, bias)), residual);
  return matmul_workload(b, stored == DType::kF32 ? y : b.cast(y, stored));
}

// silu(batch norm of a product [m, n]), all of the norm from parameters of halves.
inline Workload normed_product(DType dtype, int64_t m, int64_t n, int64_t k) {
  GraphBuilder b;
  const Shape shape = {m, n};
  const NodeId product =
      b.matmul(b.input(dtype, {m, k}), b.permute(b.input(dtype, {n, k}), {1, 0}));
  const auto of_columns = [&] {
    return b.broadcast(b.cast(b.input(dtype, {n}), DType::kF32), Shape(shape));
  };
  const auto constant = [&](double value) {
    return b.broadcast(b.constant(DType::kF32, value), Shape(shape));
  };
  const NodeId mean = of_columns(), variance = of_columns();
  const NodeId factor = b.unary(
      Op::kRsqrt, b.binary(Op::kAdd, b.binary(Op::kMul, variance, variance), constant(1e-3)));
  const NodeId normed = b.binary(Op::kMul, b.binary(Op::kSub, product, mean), factor);
  const NodeId y = b.binary(Op::kAdd, b.binary(Op::kMul, normed, of_columns()), of_columns());
  const NodeId sigmoid =
      b.binary(Op::kDiv, constant(1),
               b.binary(Op::kAdd, b.unary(Op::kExp, b.unary(Op::kNeg, y)), constant(1)));
  return matmul_workload(b, b.cast(b.binary(Op::kMul, sigmoid, y), dtype));
}

}  // namespace kiln::testing
