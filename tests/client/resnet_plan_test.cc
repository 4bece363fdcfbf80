// ResNets as torchvision exports them: one kernel a convolution, with all that follows it, one for
// the pooling and two for the head; equal layers share theirs.
#include <gtest/gtest.h>

#include <map>

#include "compiler_core/base/file.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/plan.h"

namespace kiln {
namespace {

struct Counts {
  std::map<std::string, int> launches;  // by family
  size_t distinct = 0;
};

Result<Counts> counts_of(const char* name) {
  const Path file = Path(KILN_SOURCE_DIR) / "tests/graphs/large" / name;
  TRY(const auto program, read_graph_file(file));
  TRY(const auto form, normalise(program.graph));
  TRY(const Plan made, plan(form.graph));
  Counts counts;
  counts.distinct = made.kernels.size();
  for (const Launch& launch : made.launches)
    ++counts.launches[std::string(
        to_string(made.kernels[static_cast<size_t>(launch.kernel)].family))];
  return counts;
}

TEST(ResnetPlan, Resnet18HasOneKernelAConvolutionOnePoolAndAHead) {
  const auto counts = counts_of("resnet18.pt2");
  ASSERT_TRUE(counts) << counts.error().message;
  // 20 convolutions (the 1x1 ones have stride 2), max pool, average, linear.
  const std::map<std::string, int> expected = {
      {"convolution", 20}, {"pointwise", 1}, {"row_reduction", 1}, {"matmul", 1}};
  EXPECT_EQ(counts->launches, expected);
  // The stem; of each of four stages the first block's first convolution, the one with a residual,
  // the one without; the 1x1 ones; pool and head.
  EXPECT_EQ(counts->distinct, 21U);
}

TEST(ResnetPlan, Resnet50RunsItsOneByOneConvolutionsAsMatmuls) {
  const auto counts = counts_of("resnet50_bf16.pt2");
  ASSERT_TRUE(counts) << counts.error().message;
  // 53 convolutions, of which 33 are 1x1 with stride 1; and the linear layer.
  const std::map<std::string, int> expected = {
      {"convolution", 20}, {"pointwise", 1}, {"row_reduction", 1}, {"matmul", 34}};
  EXPECT_EQ(counts->launches, expected);
}

}  // namespace
}  // namespace kiln
