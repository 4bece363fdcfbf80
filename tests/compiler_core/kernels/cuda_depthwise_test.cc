// Depthwise convolutions on CUDA, run on the fake GPU.
#include "compiler_core/kernels/convolution/cuda_depthwise.h"

#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/plan/workload.h"
#include "tests/compiler_core/kernels/convolution_workloads.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::check_schedule;
using testing::padded;
using testing::plain;
using testing::planned;
using testing::random_inputs;

const Target kTarget = *Target::parse("cuda:sm_80");

std::string check_depthwise(const Workload& workload, const CudaDepthwiseSchedule& schedule) {
  const Status covered = check_cuda_depthwise(workload);
  if (!covered) return covered.error().message;
  std::mt19937 random(15);
  const std::string wrong = check_schedule(workload, to_schedule(schedule), kTarget,
                                           random_inputs(workload.graph, random));
  return wrong.empty() ? wrong : wrong + "\n" + print(workload.graph);
}

TEST(CudaDepthwise, AgreesForWindowsStridesAndDilations) {
  // Tiles that end within the image, channels and strips that end within a tile.
  EXPECT_EQ(check_depthwise(plain(DType::kBF16, {2, 5, 9, 16}, {5, 1, 3, 3}, padded(1, 1, 5)),
                            {2, 5, 4, 7, 64}),
            "");
  EXPECT_EQ(check_depthwise(plain(DType::kF16, {1, 8, 15, 14}, {8, 1, 5, 5}, padded(2, 2, 8)),
                            {3, 4, 2, 3, 32}),
            "");
  EXPECT_EQ(check_depthwise(plain(DType::kF32, {2, 3, 7, 7}, {3, 1, 7, 7}, padded(1, 3, 3)),
                            {3, 7, 4, 7, 32}),
            "");
  EXPECT_EQ(check_depthwise(plain(DType::kBF16, {2, 6, 11, 13}, {6, 1, 3, 2},
                                  {{2, 1}, {2, 3}, {1, 0}, {4, 5}, 6}),
                            {4, 3, 3, 5, 64}),
            "");
}

TEST(CudaDepthwise, AgreesWhereNoRowIsReadToItsEnd) {
  // Windows that leave the last columns out, and images of one element.
  EXPECT_EQ(check_depthwise(plain(DType::kBF16, {1, 4, 8, 16}, {4, 1, 1, 1}, padded(4, 0, 4)),
                            {4, 2, 1, 1, 32}),
            "");
  EXPECT_EQ(check_depthwise(plain(DType::kBF16, {3, 40, 1, 1}, {40, 1, 3, 3}, padded(1, 1, 40)),
                            {16, 1, 1, 1, 32}),
            "");
}

// A sequence, as a state-space model has it: one row.
TEST(CudaDepthwise, AgreesOnSequences) {
  EXPECT_EQ(check_depthwise(plain(DType::kBF16, {2, 12, 70}, {12, 1, 4}, {{1}, {1}, {3}, {0}, 12}),
                            {4, 1, 1, 7, 64}),
            "");
}

// Channels side by side, as a product in front has them; eight in one load.
TEST(CudaDepthwise, ReadsImagesHoweverTheyAreStored) {
  for (const int64_t channels : {24, 20}) {
    GraphBuilder b;
    const NodeId x = b.permute(b.input(DType::kBF16, {2, 10, 9, channels}), {0, 3, 1, 2});
    const NodeId y =
        b.convolution(x, b.input(DType::kBF16, {channels, 1, 3, 3}), padded(1, 1, channels));
    EXPECT_EQ(check_depthwise(planned(b, b.cast(y, DType::kBF16)), {16, 4, 2, 5, 96}), "")
        << channels;
  }
}

// A batch norm's scale and shift, a residual and an activation.
TEST(CudaDepthwise, FusesAnEpilogue) {
  GraphBuilder b;
  const Shape shape = {2, 6, 8, 12};
  const NodeId y = b.convolution(b.input(DType::kBF16, Shape(shape)),
                                 b.input(DType::kBF16, {6, 1, 5, 5}), padded(1, 2, 6));
  const NodeId scale = b.broadcast(b.input(DType::kF32, {6, 1, 1}), Shape(shape));
  const NodeId shift = b.broadcast(b.input(DType::kF32, {6, 1, 1}), Shape(shape));
  const NodeId residual = b.cast(b.input(DType::kBF16, Shape(shape)), DType::kF32);
  const NodeId sum =
      b.binary(Op::kAdd, b.binary(Op::kAdd, b.binary(Op::kMul, y, scale), shift), residual);
  EXPECT_EQ(
      check_depthwise(planned(b, b.cast(b.unary(Op::kTanh, sum), DType::kBF16)), {2, 8, 4, 7, 64}),
      "");
}

TEST(CudaDepthwise, CoversWindowsOfOneChannel) {
  const auto covers = [](const Workload& workload) {
    return cuda_depthwise().covers(workload, kTarget);
  };
  EXPECT_TRUE(covers(plain(DType::kBF16, {2, 64, 8, 8}, {64, 1, 3, 3}, padded(1, 1, 64))));
  EXPECT_FALSE(covers(plain(DType::kBF16, {2, 64, 8, 8}, {128, 1, 3, 3}, padded(1, 1, 64))));
  EXPECT_FALSE(covers(plain(DType::kBF16, {2, 64, 8, 8}, {64, 2, 3, 3}, padded(1, 1, 32))));
  EXPECT_FALSE(covers(plain(DType::kF64, {2, 64, 8, 8}, {64, 1, 3, 3}, padded(1, 1, 64))));
  EXPECT_FALSE(covers(plain(DType::kF32, {2, 8, 8, 8, 8}, {8, 1, 3, 3, 3},
                            {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, 8})));
}

TEST(CudaDepthwise, CandidatesFitAndComeFirst) {
  for (const auto& [size, window, stride] : {std::array<int64_t, 3>{112, 3, 1},
                                             {112, 3, 2},
                                             {56, 7, 1},
                                             {28, 5, 2},
                                             {14, 7, 1},
                                             {7, 7, 1},
                                             {1, 3, 1}}) {
    const Workload workload = plain(DType::kBF16, {32, 96, size, size}, {96, 1, window, window},
                                    padded(stride, window / 2, 96));
    const auto space = cuda_depthwise_candidates(workload, kTarget);
    EXPECT_FALSE(space.empty()) << size;
    for (const Schedule& schedule : space) EXPECT_TRUE(lower(workload, schedule, kTarget));
    const auto all = search_space(workload, kTarget, Libraries::kLeaveOut);
    ASSERT_TRUE(all);
    EXPECT_EQ(all->front().template_name, "cuda.convolution.depthwise");
  }
}

}  // namespace
}  // namespace kiln
