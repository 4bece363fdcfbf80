// Attention kernels for CUDA, run on the fake GPU.
#include "compiler_core/kernels/attention/cuda_attention.h"

#include <gtest/gtest.h>

#include "compiler_core/ir/text.h"
#include "tests/compiler_core/kernels/attention_graphs.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::attention_workload;
using testing::AttentionGraph;
using testing::kHopper;

std::string check_cuda_attention(const AttentionGraph& graph, int limit = 1) {
  const Result<Workload> workload = attention_workload(graph);
  if (!workload) return workload.error().message;
  std::mt19937 random(7);
  const std::vector<Tensor> inputs = testing::random_inputs(workload->graph, random);
  const std::string wrong = testing::check_space(*workload, kHopper, inputs, limit);
  return wrong.empty() ? "" : wrong + "\n" + print(workload->graph);
}

TEST(CudaAttention, AgreesForEveryHeadSize) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t depth : {16, 33, 80, 256})
      EXPECT_EQ(check_cuda_attention({.dtype = dtype,
                                      .batch = {2},
                                      .rows = 19,
                                      .keys = 45,
                                      .depth = depth,
                                      .columns = depth}),
                "")
          << to_string(dtype) << depth;
}

TEST(CudaAttention, AgreesForOneQuery) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    EXPECT_EQ(check_cuda_attention({.dtype = dtype,
                                    .batch = {2, 6},
                                    .rows = 1,
                                    .keys = 130,
                                    .depth = 64,
                                    .columns = 64,
                                    .mask = AttentionGraph::Mask::kBool,
                                    .shared_by = 3}),
              "")
        << to_string(dtype);
}

TEST(CudaAttention, AgreesForEveryTypeAndMask) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    for (const AttentionGraph::Mask mask : testing::kEveryMask)
      EXPECT_EQ(check_cuda_attention({.dtype = dtype,
                                      .batch = {2},
                                      .rows = 70,
                                      .keys = 90,
                                      .mask = mask,
                                      .guarded = mask == AttentionGraph::Mask::kBool}),
                "")
          << to_string(dtype) << static_cast<int>(mask);
}

TEST(CudaAttention, AgreesHoweverTheResultIsMade) {
  for (const bool after : {false, true})
    EXPECT_EQ(check_cuda_attention({.batch = {2, 6},
                                    .rows = 23,
                                    .keys = 41,
                                    .division = after ? AttentionGraph::Division::kAfter
                                                      : AttentionGraph::Division::kBefore,
                                    .shared_by = 3,
                                    .transposed = true,
                                    .output_bias = true}),
              "")
        << after;
}

TEST(CudaAttention, GivesTheLogarithmsOfItsSums) {
  for (const AttentionGraph& graph : testing::attention_with_log_sums(21, 30, DType::kF32))
    EXPECT_EQ(check_cuda_attention(graph), "") << static_cast<int>(graph.mask) << graph.reach;
}

TEST(CudaAttention, AgreesUnderTheSchedulesOfTheSpace) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    EXPECT_EQ(check_cuda_attention({.dtype = dtype,
                                    .rows = 150,
                                    .keys = 140,
                                    .depth = 64,
                                    .columns = 32,
                                    .mask = AttentionGraph::Mask::kCausal},
                                   3),
              "")
        << to_string(dtype);
}

// Nothing is compared with the number of rows or keys then.
TEST(CudaAttention, AgreesWhereTilesEndWithRowsAndKeys) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    EXPECT_EQ(check_cuda_attention({.dtype = dtype,
                                    .rows = 128,
                                    .keys = 192,
                                    .depth = 64,
                                    .columns = 64,
                                    .mask = AttentionGraph::Mask::kAdditive}),
              "")
        << to_string(dtype);
}

TEST(CudaAttention, ARowThatSeesNothingIsZeroWhereTheModelSaysSo) {
  for (const bool guarded : {false, true})
    EXPECT_EQ(check_cuda_attention({.rows = 20,
                                    .keys = 20,
                                    .mask = AttentionGraph::Mask::kCausal,
                                    .reach = -3,
                                    .guarded = guarded}),
              "")
        << guarded;
}

}  // namespace
}  // namespace kiln
