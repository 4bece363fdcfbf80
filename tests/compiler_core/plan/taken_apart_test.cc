// Fused kernels that keep no family's rules: what is stored for their sake, and why.
#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/partition.h"
#include "tests/compiler_core/plan/run_plan.h"

namespace kiln {
namespace {

// Attention's values by hand: heads are an axis of the first product and columns of the second. The result
// of each product is rounded.
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

TEST(TakenApart, AnOperandThatNoKernelReadsIsCopiedAndTheEpilogueStays) {
  const Plan plan = testing::right_plan(heads_into_a_product());
  EXPECT_EQ(testing::families(plan), "matmul pointwise matmul");
}

TEST(TakenApart, TheReasonIsTheFamilysObjection) {
  const auto form = normalise(heads_into_a_product());
  ASSERT_TRUE(form.has_value()) << form.error().message;
  const auto parts = partition(form->graph);
  ASSERT_TRUE(parts.has_value()) << parts.error().message;
  const std::vector<FusionBoundary> boundaries = find_fusion_boundaries(*parts);
  ASSERT_EQ(boundaries.size(), 2u);
  EXPECT_EQ(boundaries[1].reason,
            "fused kernel taken apart: matmul f32[18,32]: operands are views of inputs");
}

}  // namespace
}  // namespace kiln
