// Kernels that write one row in place (plan/row_update.h), for the tests of templates.
#pragma once

#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/plan/row_update.h"
#include "compiler_core/plan/workload.h"

namespace kiln::testing {

// x [outer, rows, inner] with the row at an index, counted from the end where it is negative, replaced; in
// f32 by the exponentials of what is given.
inline NodeId updated_row(GraphBuilder& b, DType dtype, const Shape& shape, NodeId index) {
  const NodeId x = b.input(dtype, shape), rows = b.input(dtype, {shape[0], 1, shape[2]});
  const NodeId size = b.constant_int(DType::kI64, shape[1].constant());
  const NodeId negative = b.binary(Op::kLt, index, b.constant_int(DType::kI64, 0));
  const NodeId at = b.select(negative, b.binary(Op::kAdd, index, size), index);
  const std::vector<int> axis = {1};
  const NodeId positions = b.broadcast_in(b.iota(DType::kI64, shape[1]), shape, axis);
  const NodeId is_there = b.binary(Op::kEq, positions, b.broadcast(at, shape));
  NodeId value = b.broadcast(rows, shape);
  if (dtype == DType::kF32) value = b.unary(Op::kExp, value);
  return b.select(is_there, value, x);
}

inline Workload row_update(const Graph& graph) {
  auto made = make_workload(graph);
  EXPECT_TRUE(made) << made.error().message;
  EXPECT_TRUE(find_row_update(made->workload.graph)) << print(made->workload.graph);
  return with_family(std::move(made->workload), Family::kRowUpdate);
}

// A cache's, in bf16.
inline Workload row_update(const Shape& shape) {
  GraphBuilder b;
  const NodeId index = b.input(DType::kI64, {});
  return row_update(b.finish({updated_row(b, DType::kBF16, shape, index)}).value());
}

}  // namespace kiln::testing
