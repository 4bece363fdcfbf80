#include "worker/runner/tolerance.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/interpreter.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/passes/rewrite.h"
#include "tests/worker/prepared.h"

namespace kiln::runner {
namespace {

enum class Weights { kRounded, kKept, kRoundedBeforeDivision };

// Causal attention of 4 heads in bf16, keys up to `last` of each query's own place (0: causal).
Graph attention(Weights weights, int64_t keys, int64_t last = 0) {
  GraphBuilder b;
  const auto qkv = [&] { return b.input(DType::kBF16, {4, keys, 64}); };
  const NodeId q = qkv(), k = qkv(), v = qkv();
  const Shape square{4, keys, keys};
  const NodeId scores =
      b.binary(Op::kMul, b.cast(b.matmul(q, b.permute(k, {0, 2, 1})), DType::kF32),
               b.broadcast(b.constant(DType::kF32, 0.125), square));
  const auto places = [&](int axis) {
    return b.broadcast_in(b.iota(DType::kI64, keys), square, std::array{axis});
  };
  const NodeId offset = b.broadcast(b.constant_int(DType::kI64, last), square);
  const NodeId seen = b.binary(Op::kLe, places(2), b.binary(Op::kAdd, places(1), offset));
  const NodeId masked =
      b.select(seen, scores, b.broadcast(b.constant(DType::kF32, -INFINITY), square));
  const auto spread = [&](NodeId row) { return b.broadcast(row, square); };
  const NodeId e = b.unary(
      Op::kExp, b.binary(Op::kSub, masked, spread(b.reduce(Op::kReduceMax, masked, {2}, true))));
  const NodeId sum = b.reduce(Op::kReduceSum, e, {2}, true);
  const NodeId wide = b.cast(v, DType::kF32);
  const Shape out{4, keys, 64};
  if (weights == Weights::kRoundedBeforeDivision) {
    const NodeId product = b.cast(b.matmul(b.cast(e, DType::kBF16), v), DType::kF32);
    auto graph =
        b.finish({b.cast(b.binary(Op::kDiv, product, b.broadcast(sum, out)), DType::kBF16)});
    return *std::move(graph);
  }
  const NodeId p = b.binary(Op::kDiv, e, spread(sum));
  const NodeId product =
      weights == Weights::kKept ? b.matmul(p, wide) : b.matmul(b.cast(p, DType::kBF16), v);
  auto graph = b.finish({b.cast(product, DType::kBF16)});
  EXPECT_TRUE(graph) << (graph ? "" : graph.error().message);
  return *std::move(graph);
}

std::optional<Difference> verdict(const Graph& declared, const Graph& computed) {
  test::PreparedOnCpu workload(print(declared), 7);
  std::vector<const Tensor*> inputs;
  for (const Tensor& input : workload.inputs()) inputs.push_back(&input);
  auto got = interpret(computed, inputs, Precision::kHigh);
  EXPECT_TRUE(got) << (got ? "" : got.error().message);
  return workload.compare_output((*got)[0]);
}

// What a rounding leaves is all that is left of `kept - rounded`.
TEST(RoundedElsewhere, WhereARoundingIsAllThatIsLeftAKernelMayKeepTheValue) {
  const auto graph = parse_graph(
      "kiln.graph 1\n%0 = input 0 : f32[64]\n%1 = exp %0 : f32[64]\n%2 = cast %1 : bf16[64]\n"
      "%3 = cast %2 : f32[64]\n%4 = sub %1 %3 : f32[64]\nreturn %4\n");
  ASSERT_TRUE(graph);
  test::PreparedOnCpu workload(print(*graph), 7);
  Tensor kept(DType::kF32, {64}), wrong(DType::kF32, {64});
  for (int64_t i = 0; i < 64; ++i) {
    kept.set(i, 0);
    wrong.set(i, 0.5);
  }
  EXPECT_TRUE(compare(kept, workload.expected()[0], nullptr, tolerance_of(*graph, {})));
  EXPECT_FALSE(workload.compare_output(kept));
  EXPECT_TRUE(workload.compare_output(wrong));
}

TEST(RoundedElsewhere, AttentionMayKeepItsWeightsOrRoundThemBeforeItDivides) {
  const Graph graph = attention(Weights::kRounded, 160);
  ASSERT_TRUE(rounds_inside(graph));
  EXPECT_FALSE(verdict(graph, attention(Weights::kKept, 160)));
  EXPECT_FALSE(verdict(graph, attention(Weights::kRoundedBeforeDivision, 160)));
}

TEST(RoundedElsewhere, AMaskThatIsOffByOneIsStillWrong) {
  const auto difference = verdict(attention(Weights::kRounded, 160),
                                  attention(Weights::kRoundedBeforeDivision, 160, 1));
  ASSERT_TRUE(difference);
  EXPECT_GT(difference->count, 160 * 64);
}

TEST(RoundedElsewhere, AnInputInHalvesIsNoInnerHalf) {
  const auto graph = parse_graph(
      "kiln.graph 1\n%0 = input 0 : bf16[8]\n%1 = cast %0 : f32[8]\n%2 = exp %1 : f32[8]\n"
      "%3 = cast %2 : bf16[8]\nreturn %3\n");
  ASSERT_TRUE(graph);
  EXPECT_FALSE(rounds_inside(*graph));
}

// A sine of many turns has what rounding left of its sum. The reference rounds a sum once; a kernel
// rounds each step.
TEST(RoundedElsewhere, ASumMayBeRoundedAtEachStep) {
  const auto graph = parse_graph(
      "kiln.graph 1\n%0 = input 0 : f32[8192,8]\n%1 = reduce_sum %0 axes=[1] : f32[8192]\n"
      "%2 = constant 4096 : f32[]\n%3 = view %2 strides=[0] offset=[0] : f32[8192]\n"
      "%4 = mul %1 %3 : f32[8192]\n%5 = sin %4 : f32[8192]\nreturn %5\n");
  ASSERT_TRUE(graph);
  EXPECT_TRUE(rounds_inside(*graph));
  test::PreparedOnCpu workload(print(*graph), 7);
  const Tensor& x = workload.inputs()[0];
  Tensor got(DType::kF32, {8192});
  for (int64_t row = 0; row < 8192; ++row) {
    float sum = 0;
    for (int64_t i = 0; i < 8; ++i) sum += static_cast<float>(x.get(row * 8 + i));
    got.set(row, std::sin(double{4096 * sum}));
  }
  const auto declared = interpret(*graph, std::array{&x}, Precision::kDeclared);
  ASSERT_TRUE(declared);
  const Tensor& want = workload.expected()[0];
  EXPECT_TRUE(compare(got, want, &(*declared)[0], tolerance_of(*graph, {})));
  EXPECT_FALSE(workload.compare_output(got));
  got.set(5, got.get(5) + 0.5);
  EXPECT_TRUE(workload.compare_output(got));
}

TEST(RoundedElsewhere, ASumThatIsTheResultIsNoInnerOne) {
  const auto graph = parse_graph(
      "kiln.graph 1\n%0 = input 0 : f32[8,4]\n%1 = reduce_sum %0 axes=[1] : f32[8]\n"
      "%2 = view %1 strides=[1] offset=[0] : f32[8]\nreturn %2\n");
  ASSERT_TRUE(graph);
  EXPECT_FALSE(rounds_inside(*graph));
}

TEST(RoundedElsewhere, StraysFurtherThanKeepingAloneDoes) {
  const Graph graph = attention(Weights::kRounded, 32), kept = attention(Weights::kKept, 32);
  const auto elsewhere = rounded_elsewhere(graph);
  ASSERT_TRUE(elsewhere) << elsewhere.error().message;
  test::PreparedOnCpu workload(print(graph), 7);
  std::vector<const Tensor*> inputs;
  for (const Tensor& input : workload.inputs()) inputs.push_back(&input);
  const auto owns = interpret(graph, inputs, Precision::kHigh);
  const Tensor& own = (*owns)[0];
  const auto onces = interpret(kept, inputs, Precision::kHigh);
  const Tensor& once = (*onces)[0];
  const auto fars = interpret(*elsewhere, inputs, Precision::kHigh);
  const Tensor& far = (*fars)[0];
  int64_t further = 0;
  for (int64_t i = 0; i < own.numel(); ++i) {
    EXPECT_GE(std::fabs(far.get(i) - own.get(i)), std::fabs(once.get(i) - own.get(i)));
    further += far.get(i) != once.get(i);
  }
  EXPECT_GT(further, 0);
}

// A copy of each row's matrix may be a thousand times as large as their table.
TEST(RoundedElsewhere, MatricesThatAnIndexPicksAreReadByProductsAlone) {
  const auto graph = parse_graph(
      "kiln.graph 1\n%0 = input 0 : bf16[90,1,16]\n%1 = input 1 : bf16[3,16,8]\n"
      "%2 = input 2 : i64[90]\n%3 = gather %1 %2 : bf16[90,16,8]\n"
      "%4 = matmul %0 %3 : f32[90,1,8]\n%5 = cast %4 : bf16[90,1,8]\n%6 = cast %5 : f32[90,1,8]\n"
      "%7 = exp %6 : f32[90,1,8]\nreturn %7\n");
  ASSERT_TRUE(graph) << graph.error().message;
  ASSERT_TRUE(rounds_inside(*graph));
  const auto variants = rounded_elsewhere(*graph);
  ASSERT_TRUE(variants) << variants.error().message;
  int picked = 0;
  const auto users = users_of(*variants);
  for (NodeId id = 0; id < variants->size(); ++id) {
    if (variants->node(id).op != Op::kGather) continue;
    ++picked;
    for (const NodeId user : users[static_cast<size_t>(id)])
      EXPECT_EQ(variants->node(user).op, Op::kMatmul) << print(*variants);
  }
  EXPECT_EQ(picked, 2) << "elements and their magnitudes\n" << print(*variants);
}

}  // namespace
}  // namespace kiln::runner
