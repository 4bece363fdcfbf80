// Which programs' attention is one kernel, and which is not.
#include "compiler_core/plan/attention/attention.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "compiler_core/base/file.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/plan.h"
#include "tests/compiler_core/passes/random_graph.h"
#include "tests/compiler_core/plan/run_plan.h"

namespace kiln {
namespace {

int launches_of(const Plan& plan, Family family) {
  int count = 0;
  for (const Launch& launch : plan.launches)
    count += plan.kernels[static_cast<size_t>(launch.kernel)].family == family;
  return count;
}

Plan plan_of(const Graph& graph) {
  const auto form = normalise(graph);
  EXPECT_TRUE(form.has_value()) << form.error().message;
  auto made = form ? plan(form->graph) : Result<Plan>(Plan{});
  EXPECT_TRUE(made.has_value()) << made.error().message;
  return made ? *std::move(made) : Plan{};
}

// matmul, softmax, matmul of [4, rows, 16]; `more` are appended to what it returns, or, behind "@", are
// written instead of it.
std::string softmax_program(int rows, const std::string& more = "") {
  const std::string q = std::to_string(rows), shape = "[4," + q + "," + q + "]";
  const std::string spread = "strides=[" + q + ",1,0] offset=[0] : f32" + shape + "\n";
  return "kiln.graph 1\n%0 = input 0 : f32[4," + q + ",16]\n%1 = input 1 : f32[4,16," + q +
         "]\n%2 = matmul %0 %1 : f32" + shape + "\n%3 = reduce_max %2 axes=[2] : f32[4," + q +
         "]\n%4 = view %3 " + spread + "%5 = sub %2 %4 : f32" + shape + "\n%6 = exp %5 : f32" +
         shape + "\n%7 = reduce_sum %6 axes=[2] : f32[4," + q + "]\n%8 = view %7 " + spread +
         "%9 = div %6 %8 : f32" + shape + "\n%10 = input 2 : f32[4," + q +
         ",16]\n%11 = matmul %9 %10 : f32[4," + q + ",16]\n" +
         (more.starts_with('@') ? more.substr(1) : "return %11" + more) + "\n";
}
Plan plan_of_text(const std::string& text) {
  const auto graph = parse_graph(text);
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  return graph ? plan_of(*graph) : Plan{};
}

// A program of tests/graphs/small.
Plan plan_of_small(const std::string& name) {
  const auto program =
      read_graph_file(Path(KILN_SOURCE_DIR) / "tests/graphs/small" / (name + ".pt2"));
  EXPECT_TRUE(program.has_value()) << program.error().message;
  return program ? plan_of(program->graph) : Plan{};
}

// The plan has five products and one row sum, and stores two values for each score, in the operands' type.
TEST(PlanAttention, ItsGradientStoresScoresInTheOperandsType) {
  const Plan plan = plan_of_small("attention_gradient");
  EXPECT_EQ(launches_of(plan, Family::kMatmul), 5);
  EXPECT_EQ(launches_of(plan, Family::kRowReduction), 1);
  std::vector<DType> of_scores;
  for (const Buffer& buffer : plan.buffers)
    if (numel(buffer.spec.shape) == Dim(2 * 2 * 40 * 40)) of_scores.push_back(buffer.spec.dtype);
  EXPECT_EQ(of_scores, (std::vector<DType>{DType::kBF16, DType::kBF16}));
}

TEST(PlanAttention, IsOneKernelInEveryModel) {
  const std::pair<const char*, int> programs[] = {
      {"attention", 1}, {"sdpa_causal", 1}, {"bert", 2}, {"gpt2", 2}, {"llama", 2}};
  for (const auto& [name, count] : programs) {
    EXPECT_EQ(launches_of(plan_of_small(name), Family::kAttention), count) << name;
  }
}

TEST(PlanAttention, TheLargeModelsLayersShareOne) {
  const auto program =
      read_graph_file(Path(KILN_SOURCE_DIR) / "tests/graphs/large/llama_16x2048.pt2");
  ASSERT_TRUE(program.has_value()) << program.error().message;
  const Plan made = plan_of(program->graph);
  EXPECT_EQ(launches_of(made, Family::kAttention), 16);
  int kernels = 0;
  for (const Workload& kernel : made.kernels) kernels += kernel.family == Family::kAttention;
  EXPECT_EQ(kernels, 1);
  EXPECT_LE(made.kernels.size(), 12U);  // equal layers are cut alike
  EXPECT_LE(made.launches.size(), 196U);
}

TEST(PlanAttention, ComputesWhatTheProgramDoes) {
  const auto graph = parse_graph(softmax_program(24));
  ASSERT_TRUE(graph.has_value()) << graph.error().message;
  const auto form = normalise(*graph);
  ASSERT_TRUE(form.has_value());
  const Plan made = plan_of(*graph);
  EXPECT_EQ(launches_of(made, Family::kAttention), 1);
  const auto inputs = testing::random_inputs(form->graph, 1);
  const auto expected = testing::evaluate(form->graph, testing::in_order(inputs));
  const auto actual = testing::run_plan(made, testing::in_order(inputs));
  ASSERT_EQ(expected.size(), actual.size());
  testing::expect_equal(expected[0], actual[0], 1e-4);
}

// Windows of several images have one mask each: a batch is a window of an image, and reads its window's.
TEST(PlanAttention, AMaskOfFewerBatchesIsReadWhereItLies) {
  for (const bool by_image : {false, true}) {
    GraphBuilder b;
    // Values lie image by image in an order that the mask's windows go together with, or do not.
    const NodeId q = b.input(DType::kF32, {6, 24, 16}), k = b.input(DType::kF32, {6, 24, 16});
    const Shape lies = by_image ? Shape{24, 2, 3, 16} : Shape{24, 3, 2, 16};
    const NodeId v = b.reshape(b.permute(b.input(DType::kF32, lies), {2, 1, 0, 3}), {6, 24, 16});
    const NodeId mask = b.input(DType::kF32, {2, 24, 24});
    const NodeId repeated =
        b.reshape(b.broadcast_in(mask, {3, 2, 24, 24}, std::vector<int>{1, 2, 3}), {6, 24, 24});
    const NodeId scores = b.binary(Op::kAdd, b.matmul(q, b.permute(k, {0, 2, 1})), repeated);
    const auto rows = [&](NodeId x) {
      return b.broadcast_in(x, {6, 24, 24}, std::vector<int>{0, 1});
    };
    const NodeId e =
        b.unary(Op::kExp, b.binary(Op::kSub, scores, rows(b.reduce(Op::kReduceMax, scores, {2}))));
    const NodeId weights = b.binary(Op::kDiv, e, rows(b.reduce(Op::kReduceSum, e, {2})));
    const Graph graph = *b.finish({b.matmul(weights, v)});
    const auto form = normalise(graph);
    ASSERT_TRUE(form.has_value());
    const Plan made = plan_of(graph);
    EXPECT_EQ(launches_of(made, Family::kAttention), 1);
    EXPECT_EQ(made.launches.size() == 1, by_image) << testing::families(made);
    const auto inputs = testing::random_inputs(form->graph, 1);
    const auto expected = testing::evaluate(form->graph, testing::in_order(inputs));
    const auto actual = testing::run_plan(made, testing::in_order(inputs));
    testing::expect_equal(expected[0], actual[0], 1e-4);
  }
}

// Its gradient is computed from the logarithms of its sums, and training keeps them.
// Two layers with one mask, which no input has a part in: nobody stores it.
TEST(PlanAttention, AMaskOfPlacesIsComputedWhereverItIsNeeded) {
  GraphBuilder b;
  const Shape scores = {2, 64, 64};
  const auto place = [&](int axis) {
    return b.broadcast_in(b.iota(DType::kI64, 64), scores, std::array{axis});
  };
  const NodeId behind = b.binary(Op::kSub, place(1), place(2));
  const NodeId near =
      b.binary(Op::kLt, behind, b.broadcast(b.constant_int(DType::kI64, 20), scores));
  const NodeId seen = b.binary(Op::kAnd, b.binary(Op::kLe, place(2), place(1)), near);
  const NodeId hidden = b.broadcast(b.constant(DType::kF32, -INFINITY), scores);
  const auto attend = [&](NodeId q) {
    const NodeId k = b.input(DType::kF32, {2, 16, 64}), v = b.input(DType::kF32, {2, 64, 16});
    const NodeId s = b.select(seen, b.matmul(q, k), hidden);
    const auto spread = [&](Op op, NodeId x) {
      return b.broadcast_in(b.reduce(op, x, {2}), scores, std::array{0, 1});
    };
    const NodeId e = b.unary(Op::kExp, b.binary(Op::kSub, s, spread(Op::kReduceMax, s)));
    return b.matmul(b.binary(Op::kDiv, e, spread(Op::kReduceSum, e)), v);
  };
  const NodeId first = attend(b.input(DType::kF32, {2, 64, 16}));
  const NodeId second = attend(b.input(DType::kF32, {2, 64, 16}));
  const auto graph = b.finish({first, second});
  ASSERT_TRUE(graph) << graph.error().message;
  const Plan plan = plan_of(*graph);
  EXPECT_EQ(plan.launches.size(), 2u);
  EXPECT_EQ(launches_of(plan, Family::kAttention), 2);
}

TEST(PlanAttention, IsOneKernelWhereTheLogarithmsOfItsSumsAreAResult) {
  const auto computes_what_it_says = [](const std::string& more) {
    const auto graph = parse_graph(softmax_program(24, more));
    ASSERT_TRUE(graph.has_value()) << graph.error().message;
    const auto form = normalise(*graph);
    ASSERT_TRUE(form.has_value());
    const Plan made = plan_of(*graph);
    EXPECT_EQ(launches_of(made, Family::kAttention), 1) << more;
    EXPECT_LE(made.launches.size(), 3U) << more;
    const auto inputs = testing::random_inputs(form->graph, 1);
    const auto expected = testing::evaluate(form->graph, testing::in_order(inputs));
    const auto actual = testing::run_plan(made, testing::in_order(inputs));
    ASSERT_EQ(expected.size(), actual.size());
    for (size_t i = 0; i < expected.size(); ++i)
      testing::expect_equal(expected[i], actual[i], 1e-4);
  };
  const std::string logs = "%12 = log %7 : f32[4,24]\n%13 = add %12 %3 : f32[4,24]\n";
  computes_what_it_says("@" + logs + "return %13 %11");
  computes_what_it_says("@" + logs + "return %11 %13");
  computes_what_it_says(
      "@%12 = view %7 strides=[24,1,0] offset=[0] : f32[4,24,1]\n%13 = log %12 : f32[4,24,1]\n"
      "%14 = view %3 strides=[24,1,0] offset=[0] : f32[4,24,1]\n%15 = add %14 %13 : f32[4,24,1]\n"
      "return %11 %15");  // as cuDNN's op has them
  // What follows the product reads them: as results of parts of the keys are put together.
  const std::string shared =
      "%14 = exp %13 : f32[4,24]\n%15 = view %14 strides=[24,1,0] offset=[0] : "
      "f32[4,24,16]\n%16 = mul %11 %15 : f32[4,24,16]\n";
  computes_what_it_says("@" + logs + shared + "return %16");
  computes_what_it_says("@" + logs + shared + "return %13 %16");
}

TEST(PlanAttention, IsNotOneKernelWhereTheWeightsAreAResult) {
  EXPECT_EQ(launches_of(plan_of_text(softmax_program(24, " %9")), Family::kAttention), 0);
  EXPECT_EQ(launches_of(plan_of_text(softmax_program(24, " %7")), Family::kAttention), 0);
}

// One query of every sequence, as a model that writes token by token asks.
TEST(PlanAttention, FewRowsOfManyKeysAreLeftToKernelsThatCutTheKeys) {
  const auto decoded = [](int64_t rows, int64_t keys) {
    GraphBuilder b;
    const NodeId q = b.input(DType::kF32, {2, 3, rows, 16}),
                 k = b.input(DType::kF32, {2, 3, keys, 16});
    const NodeId scores = b.matmul(q, b.permute(k, {0, 1, 3, 2}));
    const auto spread = [&](NodeId id) { return b.broadcast(id, Shape(b.shape(scores))); };
    const NodeId most = b.reduce(Op::kReduceMax, scores, {3}, true);
    const NodeId e = b.unary(Op::kExp, b.binary(Op::kSub, scores, spread(most)));
    const NodeId weights = b.binary(Op::kDiv, e, spread(b.reduce(Op::kReduceSum, e, {3}, true)));
    return *b.finish({b.matmul(weights, b.input(DType::kF32, {2, 3, keys, 16}))});
  };
  for (const int64_t rows : {1, 2, 7}) {
    EXPECT_EQ(launches_of(plan_of(decoded(rows, 300)), Family::kAttention), 1) << rows;
    EXPECT_EQ(launches_of(plan_of(decoded(rows, 512)), Family::kAttention), 0) << rows;
  }
  EXPECT_EQ(launches_of(plan_of(decoded(8, 512)), Family::kAttention), 1);
}

}  // namespace
}  // namespace kiln
