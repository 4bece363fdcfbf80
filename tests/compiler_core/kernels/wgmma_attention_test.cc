// Attention on the tensor cores of compute capability 9.0, run on the fake GPU.
#include "compiler_core/kernels/wgmma/wgmma_attention.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <tuple>

#include "compiler_core/kernels/registry.h"
#include "tests/compiler_core/kernels/attention_graphs.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::attention_workload;
using testing::AttentionGraph;
using testing::kHopper;

std::string check_staged_attention(const AttentionGraph& graph,
                                   const WgmmaAttentionSchedule& schedule = {1, 64, 2}) {
  const Result<Workload> workload = attention_workload(graph);
  if (!workload) return workload.error().message;
  if (const Status covered = check_wgmma_attention(*workload); !covered)
    return covered.error().message;
  return testing::check_with_random_inputs(*workload, to_schedule(schedule), kHopper, 16);
}

TEST(WgmmaAttention, AgreesForHeadsOfEverySize) {
  for (const int64_t depth : {16, 64, 72, 128, 200, 256})
    EXPECT_EQ(check_staged_attention({.dtype = DType::kBF16,
                                      .batch = {2},
                                      .rows = 70,
                                      .keys = 140,
                                      .depth = depth,
                                      .columns = depth}),
              "")
        << depth;
  EXPECT_EQ(check_staged_attention(
                {.dtype = DType::kF16, .rows = 64, .keys = 64, .depth = 128, .columns = 40}),
            "");
}

TEST(WgmmaAttention, AgreesForEveryMask) {
  for (const AttentionGraph::Mask mask : testing::kEveryMask)
    EXPECT_EQ(check_staged_attention({.dtype = DType::kBF16,
                                      .batch = {2},
                                      .rows = 136,
                                      .keys = 200,
                                      .mask = mask,
                                      .guarded = mask == AttentionGraph::Mask::kBool}),
              "")
        << static_cast<int>(mask);
}

TEST(WgmmaAttention, AgreesUnderTheSchedulesOfTheSpace) {
  for (const WgmmaAttentionSchedule& schedule : {WgmmaAttentionSchedule{2, 128, 2},
                                                 {3, 128, 2},
                                                 {2, 64, 3},
                                                 {1, 128, 1},
                                                 {1, 64, 2, 2},
                                                 {1, 64, 2, 3},
                                                 {1, 96, 2, 3},
                                                 {2, 128, 3, 1},
                                                 {1, 80, 2, 1},
                                                 {2, 176, 1}})
    EXPECT_EQ(check_staged_attention({.dtype = DType::kBF16,
                                      .batch = {2},
                                      .rows = 200,
                                      .keys = 330,
                                      .depth = 64,
                                      .columns = 64,
                                      .mask = AttentionGraph::Mask::kCausal},
                                     schedule),
              "")
        << to_schedule(schedule).to_string();
}

// As many keys as there are, in one tile.
TEST(WgmmaAttention, AgreesWhereOneTileHasAllKeys) {
  for (const WgmmaAttentionSchedule& schedule :
       {WgmmaAttentionSchedule{2, 208, 1, 1}, {1, 112, 2, 2}, {1, 80, 2, 3}})
    EXPECT_EQ(check_staged_attention({.dtype = DType::kBF16,
                                      .batch = {2},
                                      .rows = 197,
                                      .keys = 197,
                                      .depth = 64,
                                      .columns = 64},
                                     schedule),
              "")
        << to_schedule(schedule).to_string();
}

// A device of few SMs, whose blocks have rows of several batches: one tile of keys and many, whole and not.
TEST(WgmmaAttention, AgreesWhereBlocksTakeAllRowsByTurns) {
  Target device = kHopper;
  device.units = 2;
  using Mask = AttentionGraph::Mask;
  for (const WgmmaAttentionSchedule& schedule :
       {WgmmaAttentionSchedule{1, 64, 1, 2, true}, {2, 64, 3, 1, true}, {2, 128, 2, 1, true}})
    for (const auto& [keys, mask, bias] : {std::tuple{64, Mask::kNone, true},
                                           {140, Mask::kCausal, false},
                                           {192, Mask::kNone, false},
                                           {256, Mask::kWindow, false}}) {
      const Result<Workload> workload = attention_workload({.dtype = DType::kBF16,
                                                            .batch = {2, 2},
                                                            .rows = 200,
                                                            .keys = keys,
                                                            .depth = 64,
                                                            .columns = 64,
                                                            .mask = mask,
                                                            .output_bias = bias});
      ASSERT_TRUE(workload) << workload.error().message;
      EXPECT_EQ(testing::check_with_random_inputs(*workload, to_schedule(schedule), device, 16), "")
          << to_schedule(schedule).to_string() << " " << keys;
    }
}

// Batches, queries and keys of any number: none, fewer than a tile, several tiles. Blocks by turns may find nothing.
TEST(WgmmaAttention, AgreesForSizesThatCallsChoose) {
  using Mask = AttentionGraph::Mask;
  // A workload may number symbols otherwise: their ranges name them.
  const std::vector<Symbol> symbols = {{{0, 1000}, 2}, {{0, 100'000}, 100}, {{1, 10'000}, 120}};
  std::vector<std::map<int64_t, int64_t>> calls;
  for (const auto& sizes : {std::array<int64_t, 3>{0, 5, 9},
                            {2, 0, 1},
                            {1, 1, 1},
                            {2, 64, 64},
                            {1, 65, 200},
                            {3, 150, 63}}) {
    calls.emplace_back();
    for (size_t i = 0; i < symbols.size(); ++i) calls.back()[symbols[i].range.max] = sizes[i];
  }
  for (const Mask mask : testing::kEveryMask) {
    const Result<Workload> workload = attention_workload({.dtype = DType::kBF16,
                                                          .symbols = symbols,
                                                          .batch = {Dim::symbol(0), 4},
                                                          .rows = Dim::symbol(1),
                                                          .keys = Dim::symbol(2),
                                                          .depth = 24,
                                                          .columns = 24,
                                                          .mask = mask,
                                                          .shared_by = 2,
                                                          .transposed = true,
                                                          .heads_inside = true});
    ASSERT_TRUE(workload) << workload.error().message;
    std::vector<std::vector<int64_t>> numbered;
    for (const auto& call : calls) {
      numbered.emplace_back();
      for (const Symbol& symbol : workload->graph.symbols())
        numbered.back().push_back(call.at(symbol.range.max));
    }
    const bool causal = mask == Mask::kCausal || mask == Mask::kCausalAndBool;
    const WgmmaAttentionSchedule schedules[] = {
        {1, 64, 2, 1}, {2, 80, 2, 1}, {1, 64, 2, 2, !causal}};
    const WgmmaAttentionSchedule& schedule = schedules[static_cast<size_t>(mask) % 3];
    EXPECT_EQ(testing::check_sizes(*workload, to_schedule(schedule), kHopper, numbered), "")
        << static_cast<int>(mask);
  }
}

// Without a launch nothing is read, so there may be no keys where there are no queries.
TEST(WgmmaAttention, CoversKeysOfWhichThereMayBeNoneOnlyAsQueries) {
  const auto covered = [](int64_t least, const Dim& keys, int64_t hint) {
    const Result<Workload> workload =
        attention_workload({.dtype = DType::kBF16,
                            .symbols = {{{0, 100'000}, hint}, {{least, 100'000}, hint}},
                            .rows = Dim::symbol(0),
                            .keys = keys,
                            .mask = AttentionGraph::Mask::kCausal});
    return workload && check_wgmma_attention(*workload).has_value();
  };
  EXPECT_TRUE(covered(0, Dim::symbol(0), 100));
  EXPECT_TRUE(covered(1, Dim::symbol(1), 100));
  EXPECT_FALSE(covered(0, Dim::symbol(1), 100));
  EXPECT_FALSE(covered(1, Dim::symbol(1), 40));  // few rows
}

TEST(WgmmaAttention, AgreesHoweverOperandsAndResultLie) {
  for (const bool after : {false, true})
    EXPECT_EQ(check_staged_attention({.dtype = DType::kBF16,
                                      .batch = {2, 6},
                                      .rows = 66,
                                      .keys = 72,
                                      .depth = 32,
                                      .columns = 32,
                                      .division = after ? AttentionGraph::Division::kAfter
                                                        : AttentionGraph::Division::kBefore,
                                      .shared_by = 3,
                                      .transposed = true,
                                      .output_bias = true}),
              "")
        << after;
  EXPECT_EQ(check_staged_attention({.dtype = DType::kBF16,
                                    .batch = {2, 3},
                                    .rows = 66,
                                    .keys = 66,
                                    .depth = 64,
                                    .columns = 64,
                                    .heads_inside = true}),
            "");
}

TEST(WgmmaAttention, GivesTheLogarithmsOfItsSums) {
  for (const AttentionGraph& graph : testing::attention_with_log_sums(70, 80, DType::kBF16))
    EXPECT_EQ(check_staged_attention(graph), "") << static_cast<int>(graph.mask) << graph.reach;
}

TEST(WgmmaAttention, ARowThatSeesNothingIsZeroWhereTheModelSaysSo) {
  for (const bool guarded : {false, true})
    for (const int64_t reach : {-3, -200})
      EXPECT_EQ(check_staged_attention({.dtype = DType::kBF16,
                                        .rows = 70,
                                        .keys = 80,
                                        .mask = AttentionGraph::Mask::kCausal,
                                        .reach = reach,
                                        .guarded = guarded}),
                "")
          << guarded << reach;
}

TEST(WgmmaAttention, CoversHalvesOfManyQueries) {
  const auto covers = [](const AttentionGraph& graph, const char* target = "cuda:sm_90a") {
    return wgmma_attention().covers(*attention_workload(graph), *Target::parse(target));
  };
  const AttentionGraph wide = {
      .dtype = DType::kBF16, .rows = 64, .keys = 64, .depth = 64, .columns = 64};
  EXPECT_TRUE(covers(wide));
  EXPECT_FALSE(covers(wide, "cuda:sm_80"));
  EXPECT_FALSE(covers({.dtype = DType::kF32, .rows = 64, .keys = 64}));
  EXPECT_FALSE(covers({.dtype = DType::kBF16, .rows = 1, .keys = 64}));
  EXPECT_FALSE(covers({.dtype = DType::kBF16, .rows = 64, .keys = 64, .depth = 33, .columns = 33}));
  EXPECT_TRUE(
      covers({.dtype = DType::kBF16, .rows = 64, .keys = 64, .depth = 256, .columns = 256}));
}

}  // namespace
}  // namespace kiln
