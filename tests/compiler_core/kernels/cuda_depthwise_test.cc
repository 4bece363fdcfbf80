// Depthwise convolutions on CUDA, run on the fake GPU.
#include "compiler_core/kernels/convolution/cuda_depthwise.h"

#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/plan/workload.h"
#include "tests/compiler_core/kernels/convolution_workloads.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::check_with_random_inputs;
using testing::padded;
using testing::plain;
using testing::planned;

const Target kTarget = *Target::parse("cuda:sm_80");

std::string check_depthwise(const Workload& workload, const CudaDepthwiseSchedule& schedule) {
  const Status covered = check_cuda_depthwise(workload);
  if (!covered) return covered.error().message;
  return check_with_random_inputs(workload, to_schedule(schedule), kTarget, 15);
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

// As keep_channels_last() has them: x and what follows the convolution have channels last.
struct ChannelsLast {
  DType dtype = DType::kBF16;
  Shape x;  // images, height, width, channels
  std::array<int64_t, 2> window;
  ConvolutionAttr attr;
  bool x_lies_so = true;
};
Workload channels_last(const ChannelsLast& c, bool any_images = false) {
  GraphBuilder b;
  const Dim channels = c.x[3],
            images = any_images ? Dim::symbol(b.symbol({0, 1 << 20}, 3)) : c.x[0];
  const NodeId x =
      c.x_lies_so ? b.permute(b.input(c.dtype, {images, c.x[1], c.x[2], channels}), {0, 3, 1, 2})
                  : b.input(c.dtype, {images, channels, c.x[1], c.x[2]});
  const NodeId w = b.input(c.dtype, {channels, 1, c.window[0], c.window[1]});
  NodeId y = b.permute(b.convolution(x, w, c.attr), {0, 2, 3, 1});
  const NodeId bias = b.view(b.input(c.dtype, {channels}), Shape(b.shape(y)), {0, 0, 0, 1}, 0);
  y = b.binary(Op::kAdd, y, b.cast(bias, DType::kF32));
  return planned(b, b.cast(b.unary(Op::kTanh, y), c.dtype));
}

std::string check_channels_last(const ChannelsLast& c,
                                const CudaDepthwiseChannelsLastSchedule& schedule) {
  const Workload workload = channels_last(c);
  if (!cuda_depthwise_channels_last().covers(workload, kTarget)) return "is not covered";
  return check_with_random_inputs(workload, to_schedule(schedule), kTarget, 16);
}

// Channels, rows and strips that end within a block's.
TEST(CudaDepthwise, StoresChannelsLast) {
  EXPECT_EQ(check_channels_last({.x = {2, 9, 16, 40}, .window = {3, 3}, .attr = padded(1, 1, 40)},
                                {16, 2, 4, 7, 64}),
            "");
  EXPECT_EQ(
      check_channels_last(
          {.dtype = DType::kF16, .x = {3, 15, 14, 24}, .window = {5, 5}, .attr = padded(2, 2, 24)},
          {24, 4, 2, 7, 64}),
      "");
  EXPECT_EQ(check_channels_last({.x = {1, 7, 7, 16}, .window = {7, 7}, .attr = padded(1, 3, 16)},
                                {16, 8, 2, 5, 32}),
            "");
  EXPECT_EQ(
      check_channels_last(
          {.x = {2, 11, 13, 16}, .window = {3, 2}, .attr = {{2, 1}, {2, 3}, {1, 0}, {4, 5}, 16}},
          {10, 2, 3, 4, 96}),
      "");
  EXPECT_EQ(
      check_channels_last(
          {.x = {1, 9, 40, 16}, .window = {3, 7}, .attr = {{1, 3}, {4, 5}, {4, 15}, {4, 15}, 16}},
          {16, 2, 2, 1, 32}),
      "");
  EXPECT_EQ(check_channels_last({.x = {5, 1, 1, 32}, .window = {3, 3}, .attr = padded(1, 1, 32)},
                                {32, 8, 1, 1, 64}),
            "");
}

// A thread reads rows and columns outside an image before it adds any of them up.
TEST(CudaDepthwise, AgreesWhereThreadsReadAhead) {
  const auto ahead = [](CudaDepthwiseChannelsLastSchedule schedule) {
    schedule.ahead = 1;
    return schedule;
  };
  EXPECT_EQ(check_channels_last({.x = {2, 9, 16, 40}, .window = {3, 3}, .attr = padded(1, 1, 40)},
                                ahead({16, 2, 4, 2, 64})),
            "");
  EXPECT_EQ(check_channels_last({.dtype = DType::kF16,
                                 .x = {3, 12, 13, 24},
                                 .window = {3, 3},
                                 .attr = {{2, 2}, {1, 1}, {1, 1}, {1, 1}, 24}},
                                ahead({24, 4, 2, 1, 64, 8})),
            "");
  EXPECT_EQ(
      check_channels_last(
          {.x = {2, 11, 13, 16}, .window = {3, 2}, .attr = {{2, 1}, {2, 3}, {1, 0}, {4, 5}, 16}},
          ahead({10, 2, 3, 4, 96})),
      "");
  EXPECT_EQ(check_channels_last({.x = {5, 1, 1, 32}, .window = {3, 3}, .attr = padded(1, 1, 32)},
                                ahead({32, 8, 1, 1, 64})),
            "");
}

// Where x lies channel by channel, the other kernel stores what it gives one by one.
TEST(CudaDepthwise, StoresChannelsLastWhatLiesChannelByChannel) {
  const Workload workload = channels_last(
      {.x = {2, 6, 9, 16}, .window = {3, 3}, .attr = padded(1, 1, 16), .x_lies_so = false});
  EXPECT_FALSE(cuda_depthwise_channels_last().covers(workload, kTarget));
  EXPECT_EQ(check_depthwise(workload, {4, 4, 2, 5, 64}), "");
}

TEST(CudaDepthwise, AgreesForAnyNumberOfImages) {
  const ChannelsLast c = {.x = {2, 9, 16, 40}, .window = {3, 3}, .attr = padded(1, 1, 40)};
  EXPECT_EQ(testing::check_sizes(channels_last(c, true),
                                 to_schedule(CudaDepthwiseChannelsLastSchedule{16, 2, 4, 7, 64}),
                                 kTarget, {{0}, {1}, {5}}),
            "");
  GraphBuilder b;
  const Dim images = Dim::symbol(b.symbol({0, 1 << 20}, 3));
  const NodeId x = b.input(DType::kBF16, {images, 6, 9, 11});
  const NodeId y = b.convolution(x, b.input(DType::kBF16, {6, 1, 3, 3}), padded(1, 1, 6));
  const Workload planes = planned(b, b.cast(y, DType::kBF16));
  EXPECT_EQ(testing::check_sizes(planes, to_schedule(CudaDepthwiseSchedule{2, 8, 4, 7, 64}),
                                 kTarget, {{0}, {1}, {5}}),
            "");
}

TEST(CudaDepthwise, CandidatesThatStoreChannelsLastFit) {
  for (const int64_t channels : {16, 24, 96, 144, 296, 1152}) {
    for (const int64_t size : {1, 7, 10, 56}) {
      for (const int64_t window : {3, 5, 7, 11}) {
        const Workload workload = channels_last({.x = {4, size, size, channels},
                                                 .window = {window, window},
                                                 .attr = padded(1, window / 2, channels)});
        EXPECT_FALSE(cuda_depthwise().covers(workload, kTarget));
        const auto space = search_space(workload, kTarget, Libraries::kLeaveOut);
        ASSERT_TRUE(space) << space.error().message;
        EXPECT_GE(space->size(), 2u);
        for (const Schedule& schedule : *space) EXPECT_TRUE(lower(workload, schedule, kTarget));
      }
    }
  }
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
