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
  using LogSums = AttentionGraph::LogSums;
  using Masks = AttentionGraph::Mask;
  struct Case {
    LogSums at;
    Masks mask;
    int64_t reach;  // -3: three rows see nothing
    bool guarded, after;
  };
  for (const auto& [at, mask, reach, guarded, after] :
       {Case{LogSums::kFirst, Masks::kNone, 0, false, true},
        {LogSums::kLast, Masks::kAdditive, 0, false, false},
        {LogSums::kFirst, Masks::kCausal, -3, true, false},
        {LogSums::kLast, Masks::kCausal, -3, false, true}})
    EXPECT_EQ(check_cuda_attention({.dtype = after ? DType::kBF16 : DType::kF32,
                                    .batch = {2},
                                    .rows = 21,
                                    .keys = 30,
                                    .mask = mask,
                                    .reach = reach,
                                    .guarded = guarded,
                                    .division = after ? AttentionGraph::Division::kAfter
                                                      : AttentionGraph::Division::kBefore,
                                    .output_bias = after,
                                    .log_sums = at}),
              "")
        << static_cast<int>(at) << static_cast<int>(mask) << reach;
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
