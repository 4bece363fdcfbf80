// Attention kernels against the interpreter: head sizes, odd lengths, masks, shared heads, orders
// of the result, types, schedules.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/attention/attention_problem.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/plan/kernel_cost.h"
#include "tests/compiler_core/kernels/attention_graphs.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::attention_workload;
using testing::AttentionGraph;
using testing::check_space;
using testing::random_inputs;

// Under `limit` schedules, for the target number `target` of this machine.
std::string check_attention(const AttentionGraph& graph, int limit = 1, size_t target = 0) {
  const Result<Workload> workload = attention_workload(graph);
  if (!workload) return workload.error().message;
  std::mt19937 random(7);
  const std::vector<Tensor> inputs = random_inputs(workload->graph, random);
  const std::string wrong = check_space(*workload, testing::targets()[target], inputs, limit);
  return wrong.empty() ? "" : wrong + "\n" + print(workload->graph);
}

MaskBounds mask_of(const AttentionGraph& graph) {
  const Result<Workload> workload = attention_workload(graph);
  EXPECT_TRUE(workload) << workload.error().message;
  return AttentionProblem::of(workload->graph).mask;
}

TEST(MaskBounds, SayWhichKeysAreHiddenFromWhichRows) {
  using Mask = AttentionGraph::Mask;
  const auto of = [](Mask mask, int64_t rows = 40) {
    return mask_of({.batch = {2}, .rows = rows, .keys = 50, .mask = mask, .past = 7});
  };
  const auto say_nothing_else = [](const MaskBounds& mask) { return mask.within != kInvalidNode; };
  for (const Mask mask : {Mask::kNone, Mask::kBool, Mask::kAdditive}) {
    EXPECT_FALSE(of(mask).reach);
    EXPECT_FALSE(of(mask).past);
  }
  const MaskBounds causal = of(Mask::kCausal), given = of(Mask::kCausalAndBool);
  EXPECT_EQ(causal.reach, Dim(0));
  EXPECT_FALSE(causal.past);
  EXPECT_TRUE(say_nothing_else(causal));
  EXPECT_EQ(given.reach, Dim(0));
  EXPECT_FALSE(say_nothing_else(given));
  const MaskBounds window = of(Mask::kWindow), band = of(Mask::kBand);
  EXPECT_EQ(window.reach, Dim(0));
  EXPECT_EQ(window.past, Dim(7));
  EXPECT_TRUE(say_nothing_else(window));
  EXPECT_EQ(band.reach, Dim(7));
  EXPECT_EQ(band.past, Dim(7));
  EXPECT_TRUE(say_nothing_else(band));
  const MaskBounds least = of(Mask::kLeast);
  EXPECT_EQ(least.reach, Dim(0));
  EXPECT_EQ(least.past, Dim(7));
  EXPECT_TRUE(say_nothing_else(least));
  // Rows that see no key weigh all keys alike.
  EXPECT_FALSE(of(Mask::kLeast, 60).reach);
}

// Where a mask adds the least finite number, each row has to see its own place at every size.
TEST(MaskBounds, HoldForSizesThatCallsChoose) {
  const auto of = [](const Dim& keys) {
    return mask_of({.symbols = {{{0, 1000}, 40}, {{0, 1000}, 50}},
                    .batch = {2},
                    .rows = Dim::symbol(0),
                    .keys = keys,
                    .mask = AttentionGraph::Mask::kLeast,
                    .past = 7});
  };
  EXPECT_EQ(of(Dim::symbol(0)).past, Dim(7));
  EXPECT_EQ(of(Dim::symbol(0) + Dim::symbol(1)).reach, Dim(0));
  EXPECT_FALSE(of(Dim::symbol(1)).reach);
}

// By rows and keys, one at a time.
double counted_share(const MaskBounds& mask, int64_t rows, int64_t keys) {
  int64_t shown = 0;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t key = 0; key < keys; ++key)
      shown += (!mask.reach || key <= row + mask.reach->constant()) &&
               (!mask.past || key >= row - mask.past->constant());
  return static_cast<double>(shown) / static_cast<double>(rows * keys);
}

TEST(MaskBounds, SayWhichPartOfTheScoresIsShown) {
  for (const MaskBounds& mask : {MaskBounds{}, MaskBounds{.reach = 0}, MaskBounds{.reach = -3},
                                 MaskBounds{.reach = 40}, MaskBounds{.reach = 0, .past = 5},
                                 MaskBounds{.past = 2}, MaskBounds{.reach = -9, .past = 4}})
    for (const auto& [rows, keys] : {std::pair{12, 12}, {3, 50}, {50, 3}})
      EXPECT_DOUBLE_EQ(*shown_share(mask, rows, keys, {}), counted_share(mask, rows, keys));
  EXPECT_EQ(*shown_share({.reach = 0}, 0, 9, {}), 1);
  EXPECT_FALSE(shown_share({.reach = Dim::symbol(0)}, 4, 4, {}));
}

// What a mask hides has not to be computed.
TEST(KernelCost, OfAttentionCountsWhatItsMaskShows) {
  const auto flops = [](AttentionGraph::Mask mask) {
    const auto workload =
        attention_workload({.batch = {2}, .rows = 100, .keys = 100, .mask = mask, .past = 9});
    EXPECT_TRUE(workload) << workload.error().message;
    return static_cast<double>(workload_cost(*workload, {})->contraction_flops);
  };
  const double all = flops(AttentionGraph::Mask::kNone);
  EXPECT_EQ(all, 2.0 * 2 * 2 * 100 * 100 * 16);
  EXPECT_NEAR(flops(AttentionGraph::Mask::kCausal) / all, 5050.0 / 10000, 1e-6);
  EXPECT_NEAR(flops(AttentionGraph::Mask::kWindow) / all, (100 * 10 - 45) / 10000.0, 1e-6);
}

TEST(Attention, AgreesForEveryHeadSize) {
  for (const int64_t depth : {16, 33, 80, 256})
    EXPECT_EQ(
        check_attention({.batch = {2}, .rows = 19, .keys = 45, .depth = depth, .columns = depth}),
        "")
        << depth;
  EXPECT_EQ(check_attention({.rows = 40, .keys = 40, .depth = 24, .columns = 72}), "");
}

TEST(Attention, AgreesForEveryLength) {
  for (const auto& [rows, keys] :
       {std::pair<int64_t, int64_t>{8, 2}, {1, 70}, {97, 129}, {193, 300}})
    EXPECT_EQ(check_attention({.rows = rows, .keys = keys, .depth = 32, .columns = 32}), "")
        << rows;
}

TEST(Attention, AgreesForEveryTypeAndMask) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    for (const AttentionGraph::Mask mask : testing::kEveryMask)
      EXPECT_EQ(check_attention({.dtype = dtype,
                                 .batch = {2, 3},
                                 .rows = 37,
                                 .keys = 150,
                                 .mask = mask,
                                 .guarded = mask == AttentionGraph::Mask::kBool}),
                "")
          << to_string(dtype) << static_cast<int>(mask);
}

TEST(Attention, AgreesHoweverTheWeightsAreDivided) {
  using Division = AttentionGraph::Division;
  for (const Division division : {Division::kBefore, Division::kAfter})
    for (const bool transposed : {false, true})
      EXPECT_EQ(check_attention({.batch = {2, 3},
                                 .rows = 21,
                                 .keys = 30,
                                 .division = division,
                                 .transposed = transposed}),
                "")
          << static_cast<int>(division) << transposed;
}

TEST(Attention, AgreesForSharedHeadsAndReorderedResults) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const bool bias : {false, true})
      EXPECT_EQ(check_attention({.dtype = dtype,
                                 .batch = {2, 6},
                                 .rows = 23,
                                 .keys = 41,
                                 .shared_by = 3,
                                 .transposed = true,
                                 .output_bias = bias}),
                "")
          << to_string(dtype) << bias;
}

TEST(Attention, AgreesUnderTheSchedulesOfTheSpace) {
  EXPECT_EQ(check_attention({.batch = {2},
                             .rows = 301,
                             .keys = 290,
                             .depth = 64,
                             .columns = 64,
                             .mask = AttentionGraph::Mask::kCausal},
                            4),
            "");
}

TEST(Attention, GivesTheLogarithmsOfItsSums) {
  for (const AttentionGraph& graph : testing::attention_with_log_sums(21, 30, DType::kF32))
    EXPECT_EQ(check_attention(graph), "") << static_cast<int>(graph.mask) << graph.reach;
}

TEST(Attention, AgreesOnEveryTarget) {
  const AttentionGraph graph{.dtype = DType::kBF16,
                             .batch = {3},
                             .rows = 50,
                             .keys = 70,
                             .depth = 40,
                             .columns = 40,
                             .mask = AttentionGraph::Mask::kCausal};
  for (size_t target = 0; target < testing::targets().size(); ++target)
    EXPECT_EQ(check_attention(graph, 2, target), "") << target;
}

TEST(Attention, ARowThatSeesNothingIsZeroWhereTheModelSaysSo) {
  // Row 0 sees keys up to -3: none.
  for (const bool guarded : {false, true}) {
    const AttentionGraph graph{.rows = 20,
                               .keys = 20,
                               .mask = AttentionGraph::Mask::kCausal,
                               .reach = -3,
                               .guarded = guarded};
    EXPECT_EQ(check_attention(graph, 2), "") << guarded;
  }
}

}  // namespace
}  // namespace kiln
