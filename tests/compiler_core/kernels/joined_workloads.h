// Products of one first operand as workloads, for the tests of every template that makes them.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/plan/workload.h"

namespace kiln::testing {

inline Workload joined_workload(GraphBuilder& b, std::vector<NodeId> outputs) {
  const auto graph = b.finish(std::move(outputs));
  EXPECT_TRUE(graph) << graph.error().message;
  auto made = make_workload(*graph);
  EXPECT_TRUE(made) << made.error().message << print(*graph);
  EXPECT_EQ(made->workload.family, Family::kProducts);
  return made->workload;
}

// x [m, k] times the transposes of weights [n, k], one for each of `columns`, each with a bias where
// `biased`, in halves.
inline Workload projections(GraphBuilder& b, DType dtype, const Dim& m, int64_t k,
                            const std::vector<int64_t>& columns, bool biased = true) {
  const NodeId x = b.input(dtype, {m, k});
  std::vector<NodeId> outputs;
  for (const int64_t n : columns) {
    NodeId y = b.matmul(x, b.permute(b.input(dtype, {n, k}), {1, 0}));
    if (biased)
      y = b.binary(Op::kAdd, y, b.broadcast(b.cast(b.input(dtype, {n}), DType::kF32), {m, n}));
    outputs.push_back(b.cast(y, dtype));
  }
  return joined_workload(b, std::move(outputs));
}
inline Workload projections(DType dtype, int64_t m, int64_t k, const std::vector<int64_t>& columns,
                            bool biased = true) {
  GraphBuilder b;
  return projections(b, dtype, m, k, columns, biased);
}

// A gate of x, through tanh and rounded, times another product of x.
inline Workload gated(DType dtype, int64_t m, int64_t k, int64_t n) {
  GraphBuilder b;
  const NodeId x = b.input(dtype, {m, k});
  const auto product = [&] { return b.matmul(x, b.permute(b.input(dtype, {n, k}), {1, 0})); };
  const NodeId gate = b.cast(b.unary(Op::kTanh, product()), dtype);
  return joined_workload(b,
                         {b.cast(b.binary(Op::kMul, b.cast(gate, DType::kF32), product()), dtype)});
}

}  // namespace kiln::testing
