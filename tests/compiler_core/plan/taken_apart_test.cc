// Fused kernels that keep no family's rules: what is stored for their sake, and why.
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler_core/ir/builder.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/partition.h"
#include "tests/compiler_core/passes/random_graph.h"
#include "tests/compiler_core/plan/run_plan.h"

namespace kiln {
namespace {

// Attention's values by hand: heads are an axis of the first product, and columns of the second. What
// each gives is rounded.
Graph heads_into_a_product() {
  GraphBuilder b;
  const auto wide = [&](NodeId x) { return b.cast(x, DType::kF32); };
  const auto rounded = [&](NodeId x) { return b.cast(x, DType::kBF16); };
  const NodeId p = b.input(DType::kBF16, {2, 4, 9, 9}), v = b.input(DType::kBF16, {2, 4, 9, 8});
  const NodeId w = b.input(DType::kBF16, {32, 32}), bias = b.input(DType::kBF16, {32});
  const NodeId residual = b.input(DType::kBF16, {2, 9, 32});
  NodeId x = rounded(b.matmul(p, v));
  x = b.reshape(b.permute(x, {0, 2, 1, 3}), {18, 32});
  x = b.reshape(b.matmul(x, b.permute(w, {1, 0})), {2, 9, 32});
  x = rounded(b.binary(Op::kAdd, x, b.broadcast(wide(bias), {2, 9, 32})));
  return *b.finish({rounded(b.binary(Op::kAdd, wide(residual), wide(x)))});
}

std::vector<FusionBoundary> boundaries_of(const Graph& graph) {
  const auto parts = partition(graph);
  EXPECT_TRUE(parts.has_value()) << parts.error().message;
  return parts ? find_fusion_boundaries(*parts) : std::vector<FusionBoundary>{};
}

TEST(TakenApart, AnOperandThatNoKernelReadsIsCopiedAndTheEpilogueStays) {
  const auto form = normalise(heads_into_a_product());
  ASSERT_TRUE(form.has_value());
  const auto made = plan(form->graph);
  ASSERT_TRUE(made.has_value()) << made.error().message;
  EXPECT_EQ(testing::families(*made), "matmul pointwise matmul");
  const auto inputs = testing::random_inputs(form->graph, 1);
  std::vector<const Tensor*> pointers;
  for (const Tensor& input : inputs) pointers.push_back(&input);
  const auto expected = interpret(form->graph, pointers);
  ASSERT_TRUE(expected.has_value()) << expected.error().message;
  const std::vector<Tensor> got = testing::run_plan(*made, pointers);
  ASSERT_EQ(got.size(), expected->size());
  EXPECT_TRUE(std::ranges::equal(got[0].bytes(), (*expected)[0].bytes()));
}

TEST(TakenApart, TheReasonIsTheFamilysObjection) {
  const auto form = normalise(heads_into_a_product());
  ASSERT_TRUE(form.has_value());
  const std::vector<FusionBoundary> boundaries = boundaries_of(form->graph);
  ASSERT_EQ(boundaries.size(), 2u);
  EXPECT_EQ(boundaries[1].reason,
            "fused kernel taken apart: matmul f32[18,32]: operands are views of inputs");
}

}  // namespace
}  // namespace kiln
