#include "tests/compiler_core/kernels/gradient_graph.h"

#include <array>
#include <limits>

#include "compiler_core/base/check.h"
#include "compiler_core/ir/builder.h"
#include "compiler_core/kernels/untimed_partition.h"
#include "compiler_core/passes/normalise.h"

namespace kiln::testing {

Graph gradient_graph(const GradientGraph& wanted) {
  GraphBuilder b;
  const auto operand = [&](int64_t tokens, int64_t width) {
    if (!wanted.heads_inside)
      return b.input(wanted.dtype, {wanted.batch, wanted.heads, tokens, width});
    return b.permute(b.input(wanted.dtype, {wanted.batch, tokens, wanted.heads, width}),
                     {0, 2, 1, 3});
  };
  const auto turned = [&](NodeId x) { return b.permute(x, {0, 1, 3, 2}); };
  std::vector<NodeId> results;
  for (int layer = 0; layer < wanted.layers; ++layer) {
    const NodeId query = operand(wanted.rows, wanted.depth),
                 key = operand(wanted.keys, wanted.depth);
    const NodeId value = operand(wanted.keys, wanted.width),
                 grad = operand(wanted.rows, wanted.width);
    const NodeId log_sums = b.input(DType::kF32, {wanted.batch, wanted.heads, wanted.rows, 1});
    const NodeId row = b.input(DType::kF32, {wanted.batch, wanted.heads, wanted.rows, 1});
    NodeId scores = b.matmul(query, turned(key));
    const Shape shape = b.shape(scores);
    const auto like = [&](double x) { return b.broadcast(b.constant(DType::kF32, x), shape); };
    scores = b.binary(Op::kMul, scores, like(0.25));
    if (wanted.additive)
      scores = b.binary(Op::kAdd, scores,
                        b.broadcast(b.input(DType::kF32, {wanted.rows, wanted.keys}), shape));
    if (wanted.causal) {
      const NodeId at_key = b.broadcast_in(b.iota(DType::kI64, wanted.keys), shape, std::array{3});
      const NodeId at_row = b.broadcast_in(b.iota(DType::kI64, wanted.rows), shape, std::array{2});
      scores = b.select(b.binary(Op::kLe, at_key, at_row), scores,
                        like(-std::numeric_limits<double>::infinity()));
    }
    const NodeId p = b.cast(
        b.unary(Op::kExp, b.binary(Op::kSub, scores, b.broadcast(log_sums, shape))), wanted.dtype);
    const NodeId slopes =
        b.binary(Op::kSub, b.matmul(grad, turned(value)), b.broadcast(row, shape));
    const NodeId ds =
        b.cast(b.binary(Op::kMul, b.binary(Op::kMul, b.cast(p, DType::kF32), slopes), like(0.25)),
               wanted.dtype);
    const auto result = [&](NodeId x) {
      x = b.cast(x, wanted.dtype);
      return wanted.heads_inside ? b.permute(x, {0, 2, 1, 3}) : x;
    };
    results.push_back(result(b.matmul(ds, key)));
    results.push_back(result(turned(b.matmul(turned(query), ds))));
    results.push_back(result(turned(b.matmul(turned(grad), p))));
    if (wanted.reads_scores) results.push_back(p);
  }
  return *b.finish(results);
}

Plan gradient_plan(const GradientGraph& wanted) {
  const auto form = normalise(gradient_graph(wanted));
  CHECK(form.has_value(), "a valid graph");
  auto made = plan(form->graph, partition_rules(*Target::parse("cuda:sm_90a")));
  CHECK(made.has_value(), "a plan");
  return *std::move(made);
}

}  // namespace kiln::testing
