// Scans, sorts, scatters and random values in plans: what becomes a kernel of its own, and that the
// kernels together compute the program.
#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/passes/normalise.h"
#include "tests/compiler_core/plan/run_plan.h"

namespace kiln {
namespace {

// The families of a plan's launches, when the plan gives what the interpreter does; else what is
// wrong.
std::string planned(const Graph& graph) {
  const auto form = normalise(graph);
  if (!form) return form.error().message;
  const auto made = plan(form->graph);
  if (!made) return made.error().message;
  std::vector<Tensor> inputs;
  for (NodeId id : form->graph.inputs()) {
    const Node& node = form->graph.node(id);
    inputs.emplace_back(node.dtype, constant_sizes(node.shape));
    for (int64_t i = 0; i < inputs.back().numel(); ++i)
      is_float(node.dtype) ? inputs.back().set(i, static_cast<double>((i * 7) % 11) - 4)
                           : inputs.back().set_int(i, (i * 5) % 3);
  }
  std::vector<const Tensor*> pointers;
  for (const Tensor& x : inputs) pointers.push_back(&x);
  const std::vector<Tensor> got = testing::run_plan(*made, pointers);
  const auto want = interpret(form->graph, pointers);
  if (!want) return want.error().message;
  for (size_t k = 0; k < got.size(); ++k)
    for (int64_t i = 0; i < got[k].numel(); ++i)
      if (got[k].get(i) != (*want)[k].get(i)) return "an output is wrong";
  std::string families;
  for (const Launch& launch : made->launches)
    families += (families.empty() ? "" : " ") +
                std::string(to_string(made->kernels[static_cast<size_t>(launch.kernel)].family));
  return families;
}

NodeId like(GraphBuilder& b, double value, NodeId x) {
  return b.broadcast(b.constant(b.dtype(x), value), Shape(b.shape(x)));
}

// dropout(x) = x * (uniform >= p) / (1 - p)
NodeId dropout(GraphBuilder& b, NodeId seed, NodeId x, int64_t stream) {
  const NodeId bits = b.cast(b.philox(seed, Shape(b.shape(x)), stream), DType::kF32);
  const NodeId keeps = b.binary(Op::kLe, like(b, 0x1p30, bits), bits);
  return b.binary(Op::kMul, x, b.cast(keeps, DType::kF32));
}

TEST(SingleOpKernels, APositionFromAMaskIsAComparisonAScanAndASubtraction) {
  GraphBuilder b;
  const NodeId mask = b.input(DType::kI64, {2, 9});
  const NodeId there = b.cast(b.binary(Op::kNe, mask, like(b, 0, mask)), DType::kI64);
  const NodeId sum = b.scan_sum(there, 1);
  EXPECT_EQ(planned(*b.finish({b.binary(Op::kSub, sum, like(b, 1, sum))})),
            "pointwise scan pointwise");
}

TEST(SingleOpKernels, TheGreatestValuesAreASortAndAGather) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {10});
  const NodeId order = b.argsort(x, true);
  EXPECT_EQ(planned(*b.finish({b.gather(x, b.view(order, {3}, {1}, 0))})), "sort pointwise");
}

TEST(SingleOpKernels, AnEmbeddingsGradientIsAFilledTableAndAScatter) {
  GraphBuilder b;
  const NodeId index = b.input(DType::kI64, {2, 3}), grad = b.input(DType::kF32, {2, 3, 4});
  const NodeId zeros = b.broadcast(b.constant(DType::kF32, 0), {5, 4});
  EXPECT_EQ(planned(*b.finish({b.scatter(zeros, index, grad, Combine::kAdd)})),
            "pointwise scatter");
}

TEST(SingleOpKernels, DropoutIsPartOfItsNeighbours) {
  GraphBuilder b;
  const NodeId seed = b.input(DType::kI64, {}), x = b.input(DType::kF32, {6, 8});
  const NodeId y = b.unary(Op::kNeg, dropout(b, seed, b.unary(Op::kAbs, x), 0));
  EXPECT_EQ(planned(*b.finish({y})), "pointwise");
}

TEST(SingleOpKernels, RandomValuesBeforeAReductionLeaveAMask) {
  GraphBuilder b;
  const NodeId seed = b.input(DType::kI64, {}), x = b.input(DType::kF32, {6, 8});
  const NodeId y = dropout(b, seed, x, 0);
  const NodeId greatest = b.reduce(Op::kReduceMax, y, {1}, true);
  EXPECT_EQ(planned(*b.finish({b.binary(Op::kSub, y, b.broadcast(greatest, {6, 8}))})),
            "pointwise row_reduction");
}

TEST(SingleOpKernels, RandomValuesBesideAMatmulAreStoredFirst) {
  GraphBuilder b;
  const NodeId seed = b.input(DType::kI64, {});
  const NodeId product = b.matmul(b.input(DType::kF32, {6, 4}), b.input(DType::kF32, {4, 8}));
  EXPECT_EQ(planned(*b.finish({dropout(b, seed, product, 2)})), "pointwise matmul");
}

TEST(SingleOpKernels, SumsOfOneElementAndScattersOfNothingAreNoKernels) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {4, 1});
  const NodeId none = b.view(b.input(DType::kI64, {3}), {0}, {1}, 0);
  const NodeId nothing = b.view(x, {0, 1}, {1, 1}, 0);
  const NodeId y = b.scatter(b.scan_sum(x, 1), none, nothing, Combine::kAdd);
  EXPECT_EQ(planned(*b.finish({b.unary(Op::kNeg, y)})), "pointwise");
}

TEST(SingleOpKernels, EqualScansOfDifferentRanksAreOneKernel) {
  const auto digest = [](Shape shape, int axis) {
    GraphBuilder b;
    const Graph graph = *b.finish({b.scan_sum(b.input(DType::kF32, std::move(shape)), axis)});
    return make_workload(graph)->workload.digest;
  };
  EXPECT_EQ(digest({2, 3, 40, 5}, 2), digest({6, 40, 5, 1}, 1));
  EXPECT_NE(digest({6, 40, 5}, 1), digest({6, 40, 5}, 2));
}

}  // namespace
}  // namespace kiln
