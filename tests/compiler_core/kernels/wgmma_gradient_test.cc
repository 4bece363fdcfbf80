// The gradient of attention on the tensor cores of compute capability 9.0: from a graph to kernels, run on
// the fake GPU.
#include "compiler_core/kernels/wgmma/wgmma_gradient.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler_core/ir/text.h"
#include "tests/compiler_core/kernels/gradient_graph.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::gradient_plan;
using testing::GradientGraph;
using testing::kHopper;

int gradients_in(const Plan& plan) {
  return static_cast<int>(std::ranges::count_if(plan.kernels, [](const Workload& kernel) {
    return kernel.family == Family::kAttentionGradient;
  }));
}

std::string check_kernel(const Workload& kernel, const WgmmaGradientSchedule& schedule) {
  if (const Status covered = check_wgmma_gradient(kernel); !covered) return covered.error().message;
  std::mt19937 random(5);
  std::vector<Tensor> inputs = testing::random_inputs(kernel.graph, random);
  // Exponentials of small numbers: large ones would leave little of a sum but what was rounded.
  for (Tensor& input : inputs)
    for (int64_t i = 0; i < input.numel(); ++i)
      input.set(i, input.get(i) / 4 + (input.dtype() == DType::kF32 ? 1 : 0));
  const std::string wrong = testing::check_schedule(kernel, to_schedule(schedule), kHopper, inputs);
  return wrong.empty() ? "" : wrong + "\n" + print(kernel.graph);
}

// The two kernels of the gradient agree with the interpreter.
std::string check_gradient(const GradientGraph& wanted,
                           const WgmmaGradientSchedule& schedule = {}) {
  const Plan plan = gradient_plan(wanted);
  if (gradients_in(plan) != 2 || plan.launches.size() != 2)
    return "not two kernels but " + std::to_string(plan.launches.size());
  for (const Workload& kernel : plan.kernels)
    if (std::string wrong = check_kernel(kernel, schedule); !wrong.empty()) return wrong;
  return "";
}

TEST(WgmmaGradient, AgreesForHeadsOfEverySize) {
  for (const auto& [depth, width] :
       {std::pair{64, 64}, {40, 40}, {128, 128}, {72, 72}, {64, 128}, {96, 16}})
    EXPECT_EQ(check_gradient({.depth = depth, .width = width}, {2, 3, 1}), "")
        << depth << " " << width;
}

TEST(WgmmaGradient, AgreesUnderTheSchedulesOfTheSpace) {
  for (const WgmmaGradientSchedule& schedule :
       {WgmmaGradientSchedule{2, 4, 1}, {1, 3, 2}, {2, 3, 1}})
    EXPECT_EQ(check_gradient({.batch = 1, .rows = 200, .keys = 270, .causal = true}, schedule), "")
        << to_schedule(schedule).to_string();
}

// A block that begins the next tile's scores holds two tiles while it waits for a third.
TEST(WgmmaGradient, RefusesTooFewStagesToGoAhead) {
  for (const Workload& kernel : gradient_plan({}).kernels)
    EXPECT_EQ(print_wgmma_gradient(kernel.graph, {2, 2, 1}).error().code, Code::kInvalidArgument);
  // Keys' and values' kernel, whose sums leave no registers to go ahead with.
  const Plan wide =
      gradient_plan({.batch = 1, .rows = 200, .keys = 270, .depth = 128, .width = 128});
  for (const Workload& kernel : wide.kernels)
    for (const int stages : {1, 2})
      if (kernel.graph.outputs().size() == 2)
        EXPECT_EQ(check_kernel(kernel, {1, stages, 1}), "");
      else
        EXPECT_FALSE(print_wgmma_gradient(kernel.graph, {1, stages, 1}));
}

TEST(WgmmaGradient, AgreesForEveryMaskAndLength) {
  EXPECT_EQ(check_gradient({.rows = 128, .keys = 192}), "");
  EXPECT_EQ(check_gradient({.rows = 192, .keys = 64, .causal = true}), "");
  EXPECT_EQ(check_gradient({.dtype = DType::kF16, .rows = 65, .keys = 67, .causal = true}), "");
  EXPECT_EQ(check_gradient({.rows = 65, .keys = 131, .additive = true}), "");
}

TEST(WgmmaGradient, AgreesHoweverOperandsAndResultsLie) {
  EXPECT_EQ(check_gradient({.heads_inside = true}), "");
  EXPECT_EQ(check_gradient({.batch = 1, .heads = 2, .causal = true, .heads_inside = true}), "");
}

TEST(WgmmaGradient, LayersUnderOneMaskShareTheirKernels) {
  const Plan plan = gradient_plan({.causal = true, .layers = 3});
  EXPECT_EQ(gradients_in(plan), 2);
  EXPECT_EQ(plan.launches.size(), 6U);
}

TEST(WgmmaGradient, IsNotOneKernelWhereItCannotBe) {
  EXPECT_EQ(gradients_in(gradient_plan({.reads_scores = true})), 0);
  EXPECT_EQ(gradients_in(gradient_plan({.rows = 40})), 0);                  // few
  EXPECT_EQ(gradients_in(gradient_plan({.depth = 160, .width = 160})), 0);  // wide
  EXPECT_EQ(gradients_in(gradient_plan({.depth = 36, .width = 36})), 0);  // the copy engine's pitch
  EXPECT_EQ(gradients_in(gradient_plan({.dtype = DType::kF32})), 0);
}

}  // namespace
}  // namespace kiln
