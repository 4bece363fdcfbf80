// The gradient of attention on the tensor cores of compute capability 9.0: from a graph to kernels, run on
// the fake GPU.
#include "compiler_core/kernels/wgmma/wgmma_gradient.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/untimed_partition.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/plan.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::kHopper;

struct GradientGraph {
  DType dtype = DType::kBF16;
  int64_t batch = 2, heads = 3, rows = 70, keys = 80, depth = 64, width = 64;
  bool causal = false;
  bool additive = false;      // a mask of [rows, keys]
  bool heads_inside = false;  // operands and results are [batch, tokens, heads, ...] in memory
  bool reads_scores = false;  // the weights are a result as well
};

// As aten_attention.cc writes it: the gradients of query, key and value.
Graph gradient_graph(const GradientGraph& wanted) {
  GraphBuilder b;
  const auto operand = [&](int64_t tokens, int64_t width) {
    if (!wanted.heads_inside)
      return b.input(wanted.dtype, {wanted.batch, wanted.heads, tokens, width});
    return b.permute(b.input(wanted.dtype, {wanted.batch, tokens, wanted.heads, width}),
                     {0, 2, 1, 3});
  };
  const auto turned = [&](NodeId x) { return b.permute(x, {0, 1, 3, 2}); };
  const NodeId query = operand(wanted.rows, wanted.depth), key = operand(wanted.keys, wanted.depth);
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
  const NodeId slopes = b.binary(Op::kSub, b.matmul(grad, turned(value)), b.broadcast(row, shape));
  const NodeId ds =
      b.cast(b.binary(Op::kMul, b.binary(Op::kMul, b.cast(p, DType::kF32), slopes), like(0.25)),
             wanted.dtype);
  const auto result = [&](NodeId x) {
    x = b.cast(x, wanted.dtype);
    return wanted.heads_inside ? b.permute(x, {0, 2, 1, 3}) : x;
  };
  std::vector<NodeId> results = {result(b.matmul(ds, key)),
                                 result(turned(b.matmul(turned(query), ds))),
                                 result(turned(b.matmul(turned(grad), p)))};
  if (wanted.reads_scores) results.push_back(p);
  return *b.finish(results);
}

Plan plan_of(const GradientGraph& wanted) {
  const auto form = normalise(gradient_graph(wanted));
  EXPECT_TRUE(form.has_value()) << form.error().message;
  auto made = plan(form->graph, partition_rules(kHopper));
  EXPECT_TRUE(made.has_value()) << made.error().message;
  return made ? *std::move(made) : Plan{};
}

int gradients_in(const Plan& plan) {
  return static_cast<int>(std::ranges::count_if(plan.kernels, [](const Workload& kernel) {
    return kernel.family == Family::kAttentionGradient;
  }));
}

// The two kernels of the gradient agree with the interpreter.
std::string check_gradient(const GradientGraph& wanted,
                           const WgmmaGradientSchedule& schedule = {}) {
  const Plan plan = plan_of(wanted);
  if (gradients_in(plan) != 2 || plan.launches.size() != 2)
    return "not two kernels but " + std::to_string(plan.launches.size());
  for (const Workload& kernel : plan.kernels) {
    if (const Status covered = check_wgmma_gradient(kernel); !covered)
      return covered.error().message;
    std::mt19937 random(5);
    std::vector<Tensor> inputs = testing::random_inputs(kernel.graph, random);
    // Exponentials of small numbers: large ones would leave little of a sum but what was rounded.
    for (Tensor& input : inputs)
      for (int64_t i = 0; i < input.numel(); ++i)
        input.set(i, input.get(i) / 4 + (input.dtype() == DType::kF32 ? 1 : 0));
    const std::string wrong =
        testing::check_schedule(kernel, to_schedule(schedule), kHopper, inputs);
    if (!wrong.empty()) return wrong + "\n" + print(kernel.graph);
  }
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
  for (const Workload& kernel : plan_of({}).kernels)
    EXPECT_EQ(print_wgmma_gradient(kernel.graph, {2, 2, 1}).error().code, Code::kInvalidArgument);
  for (const int stages : {1, 2})
    EXPECT_EQ(check_gradient({.batch = 1, .rows = 200, .keys = 270, .depth = 128, .width = 128},
                             {1, stages, 1}),
              "");
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

TEST(WgmmaGradient, IsNotOneKernelWhereItCannotBe) {
  EXPECT_EQ(gradients_in(plan_of({.reads_scores = true})), 0);
  EXPECT_EQ(gradients_in(plan_of({.rows = 40})), 0);                  // few
  EXPECT_EQ(gradients_in(plan_of({.depth = 160, .width = 160})), 0);  // wide
  EXPECT_EQ(gradients_in(plan_of({.depth = 36, .width = 36})), 0);    // the copy engine's pitch
  EXPECT_EQ(gradients_in(plan_of({.dtype = DType::kF32})), 0);
}

}  // namespace
}  // namespace kiln
