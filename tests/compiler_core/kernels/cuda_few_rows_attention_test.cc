// Attention of few rows on CUDA, whose keys are divided among warps and clusters, run on the fake GPU.
#include <gtest/gtest.h>

#include <string>

#include "compiler_core/kernels/attention/cuda_attention.h"
#include "compiler_core/kernels/registry.h"
#include "tests/compiler_core/kernels/attention_graphs.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::attention_workload;
using testing::AttentionGraph;
using testing::kAmpere;
using testing::kHopper;

std::string check(const AttentionGraph& graph, const CudaFewRowsAttentionSchedule& schedule,
                  const Target& target = kHopper) {
  const Result<Workload> workload = attention_workload(graph);
  if (!workload) return workload.error().message;
  return testing::check_with_random_inputs(*workload, to_schedule(schedule), target);
}

// One query of heads that share keys and values: its heads are the rows of a block.
AttentionGraph step(int64_t shared_by, int64_t keys, DType dtype = DType::kBF16) {
  return {.dtype = dtype,
          .batch = {2, shared_by * 2},
          .rows = 1,
          .keys = keys,
          .depth = 64,
          .columns = 64,
          .shared_by = shared_by};
}

TEST(CudaFewRowsAttention, AgreesForEveryNumberOfKeys) {
  // Fewer tiles than warps, as many, one more, ends inside a tile; of clusters too.
  for (const int64_t keys : {2, 15, 16, 63, 64, 65, 130, 300})
    for (const int splits : {1, 2})
      EXPECT_EQ(check(step(4, keys), {2, 16, 2, splits}), "") << keys << ' ' << splits;
}

TEST(CudaFewRowsAttention, AgreesForEverySchedule) {
  for (const CudaFewRowsAttentionSchedule& schedule : {CudaFewRowsAttentionSchedule{8, 32, 2, 1},
                                                       {4, 32, 3, 2},
                                                       {1, 16, 1, 1},
                                                       {4, 64, 1, 4},
                                                       {2, 16, 4, 8}})
    EXPECT_EQ(check(step(4, 500), schedule), "") << to_schedule(schedule).to_string();
}

TEST(CudaFewRowsAttention, AgreesForEveryNumberOfHeads) {
  for (const int64_t shared_by : {1, 3, 16, 17, 40})  // more than a block has rows
    EXPECT_EQ(check(step(shared_by, 90), {4, 16, 2, 2}), "") << shared_by;
}

TEST(CudaFewRowsAttention, AgreesForEveryTypeAndMask) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    for (const AttentionGraph::Mask mask : testing::kEveryMask)
      for (const int64_t rows : {1, 5}) {
        AttentionGraph graph = step(rows == 1 ? 3 : 1, 150, dtype);
        graph.rows = rows;
        graph.mask = mask;
        graph.reach = 150 - rows;
        graph.guarded = mask == AttentionGraph::Mask::kBool;
        EXPECT_EQ(check(graph, {2, 16, 2, 2}), "")
            << to_string(dtype) << static_cast<int>(mask) << rows;
      }
}

TEST(CudaFewRowsAttention, AgreesForEveryHeadSize) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t depth : {16, 33, 80, 128, 256}) {
      AttentionGraph graph = step(2, 45, dtype);
      graph.depth = graph.columns = depth;
      EXPECT_EQ(check(graph, {2, 16, 1, 1}), "") << to_string(dtype) << depth;
    }
}

TEST(CudaFewRowsAttention, AgreesHoweverTheResultIsMade) {
  for (const bool after : {false, true}) {
    AttentionGraph graph = step(3, 41);
    graph.division = after ? AttentionGraph::Division::kAfter : AttentionGraph::Division::kBefore;
    graph.transposed = graph.output_bias = true;
    EXPECT_EQ(check(graph, {2, 16, 2, 2}), "") << after;
  }
}

TEST(CudaFewRowsAttention, GivesTheLogarithmsOfItsSums) {
  for (AttentionGraph graph : testing::attention_with_log_sums(7, 70, DType::kF32))
    for (const int splits : {1, 2})
      EXPECT_EQ(check(graph, {2, 16, 2, splits}), "")
          << static_cast<int>(graph.mask) << graph.reach << splits;
}

TEST(CudaFewRowsAttention, ComputesKeysAndValuesAsItReadsThem) {
  constexpr DType kMultiplied[] = {DType::kF32, DType::kBF16, DType::kF16};
  constexpr DType kStoredAs[] = {DType::kF8E4M3, DType::kF8E5M2, DType::kI8};
  for (const AttentionGraph::Cache cache : testing::kEveryCache)
    for (size_t i = 0; i < 3; ++i)
      for (const int64_t keys : {4, 60, 128}) {
        AttentionGraph graph = step(3, keys, kMultiplied[i]);
        graph.cache = cache;
        graph.cached = kStoredAs[(i + static_cast<size_t>(cache)) % 3];
        graph.mask = AttentionGraph::Mask::kBool;
        graph.columns = 40;
        EXPECT_EQ(check(graph, {2, 16, 1, 2}), "")
            << static_cast<int>(cache) << to_string(graph.dtype) << to_string(graph.cached) << keys;
      }
}

TEST(CudaFewRowsAttention, ComputesThemUnderEveryMaskAndSchedule) {
  for (const AttentionGraph::Cache cache :
       {AttentionGraph::Cache::kScaledTokens, AttentionGraph::Cache::kPages})
    for (const AttentionGraph::Mask mask : testing::kEveryMask)
      for (const int64_t rows : {1, 16}) {
        AttentionGraph graph = step(1, 152, DType::kBF16);
        graph.rows = rows;
        graph.mask = mask;
        graph.reach = 152 - rows;
        graph.cache = cache;
        graph.depth = 256;
        EXPECT_EQ(check(graph, rows == 1 ? CudaFewRowsAttentionSchedule{4, 16, 3, 1}
                                         : CudaFewRowsAttentionSchedule{1, 64, 1, 1}),
                  "")
            << static_cast<int>(cache) << static_cast<int>(mask) << rows;
      }
}

TEST(CudaFewRowsAttention, ComputesKeysBesideValuesThatLieInMemory) {
  for (const AttentionGraph::Cache cache : testing::kEveryCache)
    for (const int64_t depth : {64, 72}) {
      AttentionGraph graph = step(3, 100);
      graph.cache = cache;
      graph.plain_values = true;
      graph.depth = depth;
      for (const int stages : {1, 2})
        EXPECT_EQ(check(graph, {2, 16, stages, 1}), "")
            << static_cast<int>(cache) << depth << stages;
    }
}

TEST(CudaFewRowsAttention, ComputesHeadsOfEverySize) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t depth : {8, 24, 72, 80, 104, 128, 144, 160, 184, 256}) {
      if (dtype == DType::kF32 && depth > 128) continue;
      AttentionGraph graph = step(2, 100, dtype);
      graph.cache = AttentionGraph::Cache::kScaledTokens;
      graph.depth = depth;
      graph.columns = depth == 256 ? 8 : depth + 8;
      if (dtype == DType::kF32) graph.columns = depth;
      EXPECT_EQ(check(graph, {2, 16, 2, 1}), "") << to_string(dtype) << depth;
    }
}

TEST(CudaFewRowsAttention, ComputesNothingOfHeadsThatAreNoWholeChunks) {
  AttentionGraph graph = step(2, 64);
  graph.cache = AttentionGraph::Cache::kScaled;
  EXPECT_TRUE(attention_workload(graph));
  graph.columns = 36;
  EXPECT_FALSE(attention_workload(graph));
  graph.columns = 64;
  graph.rows = 17;
  EXPECT_FALSE(attention_workload(graph));
}

TEST(CudaFewRowsAttention, IsAloneInComputingKeys) {
  for (const AttentionGraph::Cache cache : testing::kEveryCache)
    for (const int64_t keys : {4, 128}) {
      AttentionGraph graph = step(2, keys);
      graph.cache = cache;
      const Result<Workload> workload = attention_workload(graph);
      ASSERT_TRUE(workload) << workload.error().message;
      for (const Target& target : {kHopper, kAmpere}) {
        const auto space = search_space(*workload, target);
        ASSERT_TRUE(space) << space.error().message;
        ASSERT_FALSE(space->empty());
        for (const Schedule& each : *space)
          EXPECT_EQ(each.template_name, "cuda.attention.few_rows");
      }
    }
}

TEST(CudaFewRowsAttention, EveryCandidateAgrees) {
  for (const Target& target : {kHopper, kAmpere}) {
    const Result<Workload> workload = attention_workload(step(4, 480));
    ASSERT_TRUE(workload) << workload.error().message;
    const auto space = cuda_few_rows_attention().candidates(*workload, target);
    ASSERT_TRUE(space) << space.error().message;
    EXPECT_FALSE(space->empty());
    for (const Schedule& schedule : *space) {
      const auto chosen = decisions_of<CudaFewRowsAttentionSchedule>(schedule);
      ASSERT_TRUE(chosen) << chosen.error().message;
      EXPECT_EQ(check(step(4, 480), *chosen, target), "") << schedule.to_string();
    }
  }
}

TEST(CudaFewRowsAttention, CoversFewRowsAndHeadsThatShareKeys) {
  const auto covers = [](const AttentionGraph& graph) {
    const Result<Workload> workload = attention_workload(graph);
    return workload && cuda_few_rows_attention().covers(*workload, kHopper);
  };
  AttentionGraph graph = step(4, 100);
  EXPECT_TRUE(covers(graph));
  EXPECT_TRUE(covers(step(40, 100)));
  graph.rows = 16;
  EXPECT_TRUE(covers(graph));
  graph.rows = 17;
  EXPECT_FALSE(covers(graph));
}

TEST(CudaFewRowsAttention, ComesFirstWhereKeysAreMany) {
  const auto first = [](int64_t keys) {
    const Result<Workload> workload = attention_workload(step(4, keys));
    const auto space = search_space(*workload, kHopper);
    return space ? space->front().template_name : space.error().message;
  };
  EXPECT_EQ(first(480), "cuda.attention.few_rows");
  EXPECT_NE(first(40), "cuda.attention.few_rows");
}

}  // namespace
}  // namespace kiln
