// Attention whose batch and length come at run time: one kernel, right at every size.
#include <gtest/gtest.h>

#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/attention/cuda_attention.h"
#include "compiler_core/kernels/registry.h"
#include "tests/compiler_core/kernels/attention_graphs.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::attention_workload;
using testing::AttentionGraph;
using Sizes = std::vector<std::vector<int64_t>>;

const Dim kBatches = Dim::symbol(0), kLength = Dim::symbol(1), kOther = Dim::symbol(2);
constexpr Symbol kSymbols[] = {{{0, 1000}, 2}, {{0, 100'000}, 70}, {{0, 100'000}, 90}};

// Lengths at the ends and in the middle: of nothing, of one token, below, at and past a tile.
const Sizes kSizes = {{0, 5}, {1, 0}, {1, 1}, {2, 7}, {1, 64}, {3, 65}, {1, 200}};

// `graph` with as many symbols as the first of `sizes` has.
std::string check_open_attention(AttentionGraph graph, const Sizes& sizes, const Target& target,
                                 int limit) {
  graph.symbols.assign(kSymbols, kSymbols + sizes[0].size());
  const Result<Workload> workload = attention_workload(graph);
  if (!workload) return workload.error().message;
  const auto space = search_space(*workload, target);
  if (!space) return space.error().message;
  const size_t count = std::min(space->size(), static_cast<size_t>(limit));
  for (size_t i = 0; i < count; ++i) {
    const std::string wrong =
        testing::check_sizes(*workload, (*space)[i * space->size() / count], target, sizes);
    if (!wrong.empty()) return wrong + "\n" + print(workload->graph);
  }
  return "";
}
std::string check_on_host(const AttentionGraph& graph, const Sizes& sizes, int limit = 1) {
  return check_open_attention(graph, sizes, testing::targets()[0], limit);
}
std::string check_on_gpu(const AttentionGraph& graph, const Sizes& sizes, int limit = 1) {
  return check_open_attention(graph, sizes, *Target::parse("cuda:sm_90a"), limit);
}

// A layer of a language model: causal, heads inside of tokens, keys and values shared by heads.
AttentionGraph layer(DType dtype) {
  return {.dtype = dtype,
          .batch = {kBatches, 4},
          .rows = kLength,
          .keys = kLength,
          .depth = 16,
          .columns = 16,
          .mask = AttentionGraph::Mask::kCausal,
          .shared_by = 2,
          .transposed = true,
          .heads_inside = true};
}

TEST(SymbolicAttention, ALayerOfAnyBatchAndLengthIsOneKernel) {
  EXPECT_EQ(check_on_host(layer(DType::kF32), kSizes, 2), "");
  EXPECT_EQ(check_on_host(layer(DType::kBF16), kSizes), "");
}
TEST(CudaSymbolicAttention, ALayerOfAnyBatchAndLengthIsOneKernel) {
  EXPECT_EQ(check_on_gpu(layer(DType::kF32), kSizes), "");
  EXPECT_EQ(check_on_gpu(layer(DType::kBF16), kSizes, 2), "");
}

// A step of decoding: heads that share keys are rows of a block.
TEST(CudaSymbolicAttention, OneRowBehindACacheOfAnyLength) {
  const Target target = *Target::parse("cuda:sm_90a");
  for (const AttentionGraph::Mask mask :
       {AttentionGraph::Mask::kNone, AttentionGraph::Mask::kBool}) {
    AttentionGraph graph = layer(DType::kBF16);
    graph.rows = 1;
    graph.mask = mask;
    graph.symbols.assign(kSymbols, kSymbols + 2);
    const Result<Workload> workload = attention_workload(graph);
    ASSERT_TRUE(workload) << workload.error().message;
    for (const CudaFewRowsAttentionSchedule& schedule :
         {CudaFewRowsAttentionSchedule{2, 16, 2, 1}, {4, 16, 2, 2}})
      EXPECT_EQ(testing::check_sizes(*workload, to_schedule(schedule), target, kSizes), "")
          << static_cast<int>(mask) << schedule.splits;
  }
}

// The cache in 8 bits, or in pages of four tokens.
TEST(CudaSymbolicAttention, OneRowBehindACacheThatIsComputed) {
  const Target target = *Target::parse("cuda:sm_90a");
  for (const AttentionGraph::Cache cache : testing::kEveryCache) {
    AttentionGraph graph = layer(DType::kBF16);
    graph.rows = 1;
    graph.keys = kLength * 4;
    graph.mask = AttentionGraph::Mask::kNone;
    graph.cache = cache;
    graph.symbols.assign(kSymbols, kSymbols + 2);
    const Result<Workload> workload = attention_workload(graph);
    ASSERT_TRUE(workload) << workload.error().message;
    const auto space = search_space(*workload, target);
    ASSERT_TRUE(space) << space.error().message;
    EXPECT_EQ(testing::check_sizes(*workload, space->front(), target,
                                   {{0, 2}, {1, 0}, {1, 1}, {2, 3}, {1, 16}, {3, 17}}),
              "")
        << static_cast<int>(cache);
  }
}

TEST(SymbolicAttention, AnyBatchOfAKnownLength) {
  AttentionGraph graph = layer(DType::kF32);
  graph.rows = graph.keys = 23;
  EXPECT_EQ(check_on_host(graph, {{0}, {1}, {5}}), "");
  EXPECT_EQ(check_on_gpu(graph, {{0}, {1}, {5}}), "");
}

// As many keys as there are, whatever the number of queries: none of them, too.
TEST(SymbolicAttention, QueriesAndKeysOfTheirOwnNumberUnderMasks) {
  const Sizes sizes = {{2, 7, 0}, {1, 65, 1}, {2, 9, 70}, {1, 130, 40}};
  for (const AttentionGraph::Mask mask :
       {AttentionGraph::Mask::kBool, AttentionGraph::Mask::kAdditive,
        AttentionGraph::Mask::kCausalAndBool}) {
    const AttentionGraph graph{.batch = {kBatches, 2},
                               .rows = kLength,
                               .keys = kOther,
                               .depth = 20,
                               .columns = 12,
                               .mask = mask,
                               .guarded = mask == AttentionGraph::Mask::kBool,
                               .output_bias = true};
    EXPECT_EQ(check_on_host(graph, sizes), "") << static_cast<int>(mask);
    EXPECT_EQ(check_on_gpu(graph, sizes), "") << static_cast<int>(mask);
  }
}

TEST(SymbolicAttention, GivesTheLogarithmsOfItsSums) {
  const Sizes sizes = {{2, 7, 0}, {1, 65, 1}, {2, 9, 70}};
  for (const AttentionGraph::Mask mask :
       {AttentionGraph::Mask::kNone, AttentionGraph::Mask::kCausal}) {
    const AttentionGraph graph{.batch = {kBatches, 2},
                               .rows = kLength,
                               .keys = kOther,
                               .depth = 20,
                               .columns = 12,
                               .mask = mask,
                               .log_sums = AttentionGraph::LogSums::kLast};
    EXPECT_EQ(check_on_host(graph, sizes), "") << static_cast<int>(mask);
    EXPECT_EQ(check_on_gpu(graph, sizes), "") << static_cast<int>(mask);
  }
}

TEST(SymbolicAttention, ResultsThatAreDividedAfterwards) {
  AttentionGraph graph = layer(DType::kF32);
  graph.division = AttentionGraph::Division::kAfter;
  EXPECT_EQ(check_on_host(graph, kSizes), "");
  EXPECT_EQ(check_on_gpu(graph, kSizes), "");
}

}  // namespace
}  // namespace kiln
