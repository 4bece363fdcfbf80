// Convolutions on the tensor cores of compute capability 9.0, run on the fake GPU.
#include "compiler_core/kernels/wgmma/wgmma_convolution.h"

#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/plan/workload.h"
#include "tests/compiler_core/kernels/convolution_workloads.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::check_with_random_inputs;
using testing::kHopper;
using testing::padded;
using testing::plain;
using testing::planned;

std::string check_staged_convolution(const Workload& workload,
                                     const WgmmaConvolutionSchedule& schedule,
                                     const Target& target = kHopper) {
  const Status covered = check_wgmma_convolution(workload);
  if (!covered) return covered.error().message;
  return check_with_random_inputs(workload, to_schedule(schedule), target, 15);
}

TEST(WgmmaConvolution, AgreesForWindowsStridesAndDilations) {
  const WgmmaConvolutionSchedule schedule{{64, 64, 1, 4, 8}};
  EXPECT_EQ(check_staged_convolution(
                plain(DType::kBF16, {2, 64, 8, 8}, {64, 64, 3, 3}, padded(1, 1)), schedule),
            "");
  EXPECT_EQ(check_staged_convolution(
                plain(DType::kF16, {2, 40, 9, 7}, {72, 40, 3, 3}, padded(2, 1)), schedule),
            "");
  EXPECT_EQ(check_staged_convolution(
                plain(DType::kBF16, {1, 72, 8, 12}, {32, 72, 1, 1}, padded(2, 0)), schedule),
            "");
  EXPECT_EQ(check_staged_convolution(plain(DType::kBF16, {2, 32, 9, 11}, {40, 32, 3, 2},
                                           {{2, 1}, {1, 2}, {1, 0}, {2, 1}, 1}),
                                     {{64, 32, 1, 3, 8}}),
            "");
  EXPECT_EQ(check_staged_convolution(
                plain(DType::kBF16, {1, 61, 5, 7}, {33, 61, 3, 3}, padded(1, 1)), schedule),
            "");
  // Planes in whole vectors, of which windows leave the last row out.
  EXPECT_EQ(check_staged_convolution(plain(DType::kBF16, {2, 32, 7, 10}, {40, 32, 2, 2},
                                           {{2, 2}, {1, 1}, {1, 2}, {0, 0}, 1}),
                                     {{64, 32, 1, 3, 8}}),
            "");
  EXPECT_EQ(check_staged_convolution(
                plain(DType::kBF16, {2, 48, 30}, {24, 48, 5}, {{1}, {2}, {4}, {4}, 1}), schedule),
            "");
}

TEST(WgmmaConvolution, AgreesForTilesOfSeveralGroupsAndBlocksThatStay) {
  Target few = kHopper;
  few.units = 2;
  const Workload workload = plain(DType::kBF16, {3, 64, 12, 14}, {136, 64, 3, 3}, padded(1, 1));
  for (const WgmmaMatmulSchedule& schedule :
       {WgmmaMatmulSchedule{128, 128, 2, 3, 8}, {128, 96, 2, 4, 2}, {64, 192, 1, 5, 8}})
    EXPECT_EQ(check_staged_convolution(workload, WgmmaConvolutionSchedule{schedule}, few), "")
        << to_schedule(schedule).to_string();
}

// Channels side by side, as a channels-last model hands them over.
TEST(WgmmaConvolution, ReadsImagesAndWeightsHoweverTheyAreStored) {
  GraphBuilder b;
  const NodeId x = b.permute(b.input(DType::kBF16, {2, 8, 6, 64}), {0, 3, 1, 2});
  const NodeId w = b.permute(b.input(DType::kBF16, {64, 3, 3, 64}), {0, 3, 1, 2});
  EXPECT_EQ(
      check_staged_convolution(planned(b, b.cast(b.convolution(x, w, padded(1, 1)), DType::kBF16)),
                               {{64, 64, 1, 4, 8}}),
      "");
}

// A batch norm's scale and shift, a residual and a relu; results of 49 positions are stored by
// threads, those of 48 by the copy engine.
TEST(WgmmaConvolution, FusesAnEpilogue) {
  for (const int64_t width : {6, 7}) {
    GraphBuilder b;
    const Shape shape = {2, 72, width == 6 ? 8 : 7, width};
    const NodeId x = b.input(DType::kBF16, {2, 64, shape[2], width});
    const NodeId y = b.convolution(x, b.input(DType::kBF16, {72, 64, 3, 3}), padded(1, 1));
    const NodeId scale = b.broadcast(b.input(DType::kF32, {72, 1, 1}), Shape(shape));
    const NodeId shift = b.broadcast(b.input(DType::kF32, {72, 1, 1}), Shape(shape));
    const NodeId residual = b.cast(b.input(DType::kBF16, Shape(shape)), DType::kF32);
    const NodeId sum =
        b.binary(Op::kAdd, b.binary(Op::kAdd, b.binary(Op::kMul, y, scale), shift), residual);
    EXPECT_EQ(check_staged_convolution(planned(b, b.cast(b.unary(Op::kTanh, sum), DType::kBF16)),
                                       {{64, 64, 1, 4, 8}}),
              "")
        << width;
  }
}

// As keep_channels_last() has them: what follows the convolution is in its order, x too or not.
struct ChannelsLast {
  DType dtype = DType::kBF16;
  Shape x, w;
  ConvolutionAttr attr;
  bool x_last = true, w_last = false, residual = false;
};
Workload channels_last(const ChannelsLast& c, std::optional<int64_t> measured = {}) {
  GraphBuilder b;
  // Of as many images as a call has, where some were `measured`.
  const Dim images = measured ? Dim::symbol(b.symbol({0, 1 << 20}, *measured)) : c.x[0];
  const auto image = [&](Shape shape, bool last) {
    if (!last) return b.input(c.dtype, std::move(shape));
    return b.permute(b.input(c.dtype, {shape[0], shape[2], shape[3], shape[1]}), {0, 3, 1, 2});
  };
  const NodeId x = image({images, c.x[1], c.x[2], c.x[3]}, c.x_last), w = image(c.w, c.w_last);
  NodeId y = b.permute(b.convolution(x, w, c.attr), {0, 2, 3, 1});
  if (c.residual) {
    const Shape shape = b.shape(y);
    const NodeId shift = b.broadcast(b.input(DType::kF32, {shape[3]}), Shape(shape));
    const NodeId other = b.cast(b.input(c.dtype, Shape(shape)), DType::kF32);
    y = b.unary(Op::kTanh, b.binary(Op::kAdd, b.binary(Op::kAdd, y, shift), other));
  }
  return planned(b, b.cast(y, c.dtype));
}

TEST(WgmmaConvolution, StoresChannelsLast) {
  const WgmmaConvolutionSchedule schedule{{64, 64, 1, 4, 8}};
  const ConvolutionAttr uneven{{2, 1}, {1, 2}, {1, 0}, {2, 1}, 1};
  for (const ChannelsLast& c : std::vector<ChannelsLast>{
           {.x = {2, 64, 8, 8}, .w = {64, 64, 3, 3}, .attr = padded(1, 1), .residual = true},
           {.x = {2, 64, 8, 8}, .w = {64, 64, 3, 3}, .attr = padded(1, 1), .w_last = true},
           {.x = {3, 64, 7, 7}, .w = {128, 64, 1, 1}, .attr = padded(2, 0)},
           {.dtype = DType::kF16, .x = {2, 40, 9, 7}, .w = {72, 40, 3, 3}, .attr = padded(2, 1)},
           {.x = {2, 32, 9, 11}, .w = {40, 32, 3, 2}, .attr = uneven, .residual = true},
           {.x = {2, 48, 9, 11}, .w = {40, 48, 3, 2}, .attr = uneven, .x_last = false},
           {.x = {2, 64, 8, 8}, .w = {64, 64, 3, 3}, .attr = padded(1, 1), .x_last = false},
           {.x = {3, 64, 2, 2}, .w = {72, 64, 2, 2}, .attr = padded(2, 0), .residual = true}})
    EXPECT_EQ(check_staged_convolution(channels_last(c), schedule), "");
}

TEST(WgmmaConvolution, StoresChannelsLastByBlocksThatStay) {
  Target few = kHopper;
  few.units = 2;
  const Workload workload = channels_last(
      {.x = {3, 64, 12, 14}, .w = {136, 64, 3, 3}, .attr = padded(1, 1), .residual = true});
  for (const WgmmaMatmulSchedule& schedule :
       {WgmmaMatmulSchedule{128, 128, 2, 3, 8}, {128, 96, 2, 4, 2}, {256, 64, 2, 4, 8}})
    EXPECT_EQ(check_staged_convolution(workload, WgmmaConvolutionSchedule{schedule}, few), "")
        << to_schedule(schedule).to_string();
}

// Weights as they lie or laid out before, a last chunk of few channels, tiles that begin and end
// amid an image's row, strides, and corners on either side of an image's.
TEST(WgmmaConvolution, ReadsWindowsByTheCopyEngine) {
  const ConvolutionAttr uneven{{2, 1}, {1, 2}, {1, 0}, {2, 1}, 1},
      wide{{3, 2}, {2, 1}, {4, 3}, {4, 3}, 1}, line{{1, 2}, {1, 3}, {0, 6}, {0, 4}, 1};
  for (const ChannelsLast& c : std::vector<ChannelsLast>{
           {.x = {2, 64, 8, 8}, .w = {64, 64, 3, 3}, .attr = padded(1, 1), .residual = true},
           {.x = {2, 64, 8, 8}, .w = {64, 64, 3, 3}, .attr = padded(1, 1), .w_last = true},
           {.x = {3, 128, 7, 7}, .w = {128, 128, 1, 1}, .attr = padded(2, 0), .w_last = true},
           {.dtype = DType::kF16,
           .x = {2, 40, 9, 7},
           .w = {72, 40, 3, 3},
           .attr = padded(2, 1),
           .w_last = true},
           {.x = {2, 32, 9, 11}, .w = {40, 32, 3, 2}, .attr = uneven, .residual = true},
           {.x = {1, 136, 9, 11}, .w = {40, 136, 3, 2}, .attr = uneven, .w_last = true},
           {.x = {2, 72, 13, 10}, .w = {40, 72, 3, 5}, .attr = wide},
           {.x = {1, 64, 1, 37}, .w = {72, 64, 1, 5}, .attr = line, .w_last = true},
           {.x = {1, 8, 5, 3}, .w = {40, 8, 3, 3}, .attr = padded(1, 1)},
           {.x = {3, 64, 2, 2}, .w = {72, 64, 2, 2}, .attr = padded(2, 0), .residual = true}})
    for (const int shared : {0, 1})
      EXPECT_EQ(check_staged_convolution(channels_last(c),
                                         WgmmaConvolutionSchedule{{64, 64, 1, 4, 8}, 1, shared}),
                "");
}

// More blocks than tiles and fewer, by the copy engine and by threads; images and weights as they lie and laid
// out before, with zeros around or none.
TEST(WgmmaConvolution, AgreesForAnyNumberOfImages) {
  Target few = kHopper;
  few.units = 2;
  for (const ChannelsLast& c : std::vector<ChannelsLast>{
           {.x = {2, 64, 8, 8}, .w = {64, 64, 3, 3}, .attr = padded(1, 1), .residual = true},
           {.x = {2, 40, 9, 7}, .w = {72, 40, 3, 3}, .attr = padded(2, 1), .w_last = true},
           {.x = {2, 48, 6, 8}, .w = {40, 48, 3, 2}, .attr = padded(1, 1), .x_last = false},
           {.x = {2, 64, 2, 2}, .w = {72, 64, 2, 2}, .attr = padded(2, 0), .residual = true}}) {
    const Workload workload = channels_last(c, 3);
    ASSERT_TRUE(check_wgmma_convolution(workload)) << print(workload.graph);
    for (const int im2col : {0, 1}) {
      if (im2col == 1 && !c.x_last) continue;
      EXPECT_EQ(testing::check_sizes(
                    workload, to_schedule(WgmmaConvolutionSchedule{{64, 64, 1, 4, 8}, im2col}), few,
                    {{0}, {1}, {7}}),
                "")
          << im2col;
    }
    const auto space = wgmma_convolution().candidates(workload, kHopper);
    ASSERT_TRUE(space);
    for (const Schedule& schedule : *space)
      EXPECT_EQ(decisions_of<WgmmaConvolutionSchedule>(schedule)->shared, 0);
  }
}

TEST(WgmmaConvolution, AgreesForAnyNumberOfImagesChannelByChannel) {
  GraphBuilder b;
  const Dim images = Dim::symbol(b.symbol({0, 1 << 20}, 3));
  const NodeId x = b.input(DType::kBF16, {images, 64, 6, 7});
  const NodeId y = b.convolution(x, b.input(DType::kBF16, {72, 64, 3, 3}), padded(1, 1));
  const NodeId residual = b.cast(b.input(DType::kBF16, {images, 72, 6, 7}), DType::kF32);
  const Workload workload = planned(b, b.cast(b.binary(Op::kAdd, y, residual), DType::kBF16));
  ASSERT_TRUE(check_wgmma_convolution(workload)) << print(workload.graph);
  EXPECT_EQ(testing::check_sizes(workload, to_schedule(WgmmaConvolutionSchedule{{64, 64, 1, 4, 8}}),
                                 kHopper, {{0}, {1}, {4}}),
            "");
}

// Two blocks that stay, of whole tiles; and many, each of which has a part of a tile or two.
TEST(WgmmaConvolution, DividesTheDepthAmongBlocks) {
  const Workload workload = channels_last(
      {.x = {3, 64, 12, 14}, .w = {136, 64, 3, 3}, .attr = padded(1, 1), .residual = true});
  for (const int units : {2, 5, 23})
    for (const WgmmaMatmulSchedule& tiles :
         {WgmmaMatmulSchedule{128, 128, 2, 3, 8}, {128, 96, 2, 4, 2}, {256, 64, 2, 4, 8}})
      for (const int shared : {0, 1}) {
        if (shared == 0 && units != 2) continue;
        Target target = kHopper;
        target.units = units;
        const WgmmaConvolutionSchedule schedule{tiles, 1, shared};
        EXPECT_EQ(check_staged_convolution(workload, schedule, target), "")
            << units << to_schedule(schedule).to_string();
      }
}

// Windows by the copy engine and by threads; numbers of images that are known and that calls choose.
TEST(WgmmaConvolution, AgreesWhereWarpgroupsTakeTilesByTurns) {
  Target few = kHopper;
  few.units = 2;
  const ChannelsLast convolution{
      .x = {3, 64, 12, 14}, .w = {136, 64, 3, 3}, .attr = padded(1, 1), .residual = true};
  const Workload workload = channels_last(convolution), open = channels_last(convolution, 3);
  for (WgmmaMatmulSchedule tiles : {WgmmaMatmulSchedule{64, 64, 2, 4, 8}, {128, 96, 2, 3, 2}}) {
    tiles.ping_pong = 1;
    for (const int im2col : {0, 1}) {
      const WgmmaConvolutionSchedule schedule{tiles, im2col};
      EXPECT_EQ(check_staged_convolution(workload, schedule, few), "") << im2col;
      EXPECT_EQ(testing::check_sizes(open, to_schedule(schedule), few, {{0}, {1}, {4}}), "")
          << im2col;
    }
    EXPECT_FALSE(fits_convolution({tiles, 1, 1}, workload.graph)) << "blocks that share tiles";
  }
}

// Strides that the copy engine lacks, windows that reach too far, images that lie otherwise.
TEST(WgmmaConvolution, ThreadsGatherWhatTheCopyEngineCannot) {
  const auto has = [](const ChannelsLast& c) {
    return fits_convolution(WgmmaConvolutionSchedule{{64, 64, 1, 4, 8}, 1, 0},
                            channels_last(c).graph);
  };
  EXPECT_TRUE(has({.x = {2, 64, 20, 20}, .w = {64, 64, 3, 3}, .attr = padded(8, 1)}));
  EXPECT_FALSE(has({.x = {2, 64, 20, 20}, .w = {64, 64, 3, 3}, .attr = padded(9, 1)}));
  EXPECT_FALSE(
      has({.x = {2, 64, 8, 8}, .w = {64, 64, 3, 3}, .attr = padded(1, 1), .x_last = false}));
  EXPECT_FALSE(has(
      {.x = {1, 8, 300, 3}, .w = {64, 8, 150, 1}, .attr = {{1, 1}, {1, 1}, {0, 0}, {0, 0}, 1}}));
  EXPECT_FALSE(
      fits_convolution(WgmmaConvolutionSchedule{{64, 64, 1, 4, 8}, 1, 0},
                       plain(DType::kBF16, {2, 64, 8, 8}, {64, 64, 3, 3}, padded(1, 1)).graph));
}

TEST(WgmmaConvolution, OnlyItStoresChannelsLast) {
  const Workload workload =
      channels_last({.x = {2, 64, 8, 8}, .w = {64, 64, 3, 3}, .attr = padded(1, 1)});
  const auto space = search_space(workload, kHopper);
  ASSERT_TRUE(space) << space.error().message;
  for (const Schedule& schedule : *space)
    EXPECT_EQ(schedule.template_name, WgmmaConvolutionSchedule::kTemplate);
  for (const char* other : {"cuda:sm_80", "cpu:x86-64-v3"})
    EXPECT_FALSE(search_space(workload, *Target::parse(other)));
}

TEST(WgmmaConvolution, CoversHalvesOfManyChannels) {
  const auto covers = [](const Workload& workload, const char* target = "cuda:sm_90a") {
    return wgmma_convolution().covers(workload, *Target::parse(target));
  };
  EXPECT_TRUE(covers(plain(DType::kBF16, {2, 64, 8, 8}, {64, 64, 3, 3}, padded(1, 1))));
  EXPECT_FALSE(
      covers(plain(DType::kBF16, {2, 64, 8, 8}, {64, 64, 3, 3}, padded(1, 1)), "cuda:sm_80"));
  EXPECT_FALSE(covers(plain(DType::kF32, {2, 64, 8, 8}, {64, 64, 3, 3}, padded(1, 1))));
  EXPECT_FALSE(covers(plain(DType::kBF16, {2, 3, 8, 8}, {64, 3, 3, 3}, padded(1, 1))));
  EXPECT_FALSE(covers(plain(DType::kBF16, {2, 64, 8, 8}, {64, 1, 3, 3}, padded(1, 1, 64))));
  EXPECT_FALSE(covers(plain(DType::kBF16, {2, 64, 8, 8}, {64, 32, 3, 3}, padded(1, 1, 2))));
  EXPECT_FALSE(covers(plain(DType::kBF16, {1, 64, 4, 4, 4}, {64, 64, 3, 3, 3},
                            {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, 1})));
}

TEST(WgmmaConvolution, CandidatesFit) {
  const Workload workload = plain(DType::kBF16, {32, 256, 56, 56}, {256, 256, 3, 3}, padded(1, 1));
  const auto space = wgmma_convolution_candidates(workload, kHopper);
  ASSERT_GE(space.size(), 3u);
  for (const Schedule& schedule : space) EXPECT_TRUE(lower(workload, schedule, kHopper));
}

// How many candidates gather windows, and how many the copy engine brings; the latter, which won wherever
// there were any, stand in front.
std::pair<int, int> gathered_and_im2col(const ChannelsLast& c) {
  const Workload workload = channels_last(c);
  int gathered = 0, im2col = 0;
  for (const Schedule& schedule : wgmma_convolution_candidates(workload, kHopper)) {
    EXPECT_TRUE(lower(workload, schedule, kHopper)) << schedule.to_string();
    if (schedule.get("im2col", 0) == 1) {
      ++im2col;
      EXPECT_EQ(gathered, 0) << schedule.to_string() << " stands behind what is slower";
    } else {
      ++gathered;
    }
  }
  return {gathered, im2col};
}

TEST(WgmmaConvolution, TheCopyEnginesCandidatesStandBeforeTheBestOthersWhereStepsAreFew) {
  EXPECT_EQ(
      gathered_and_im2col({.x = {32, 256, 14, 14}, .w = {256, 256, 3, 3}, .attr = padded(1, 1)}),
      std::pair(1, 3));
  // Eight channels would be a step for each of 49 elements, in place of seven. So few may have two blocks
  // an SM, and warpgroups take tiles by turns: two candidates more.
  EXPECT_EQ(gathered_and_im2col({.x = {32, 8, 56, 56}, .w = {64, 8, 7, 7}, .attr = padded(2, 3)}),
            std::pair(6, 0));
}

}  // namespace
}  // namespace kiln
