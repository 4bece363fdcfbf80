// Products of one first operand on the tensor cores of compute capability 9.0, run on the fake GPU.
#include "compiler_core/kernels/wgmma/wgmma_matmul.h"

#include <gtest/gtest.h>

#include "compiler_core/kernels/registry.h"
#include "tests/compiler_core/kernels/joined_workloads.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::check_with_random_inputs;
using testing::gated;
using testing::kHopper;
using testing::projections;

Target few_sms() {
  Target target = kHopper;
  target.units = 2;
  return target;
}

std::string check_tiles(const Workload& workload, const WgmmaMatmulSchedule& decisions,
                        const Target& target = kHopper) {
  return check_with_random_inputs(workload, to_schedule(WgmmaJoinedSchedule{decisions}), target);
}

// Whole tiles of every output, outputs that end inside one, outputs smaller than one.
TEST(WgmmaJoined, AgreesForEveryNumberOfColumns) {
  for (const std::vector<int64_t>& columns : std::vector<std::vector<int64_t>>{
           {128, 64, 64}, {136, 8, 72}, {64, 192}, {8, 8, 8, 8, 8, 8, 8, 8}})
    EXPECT_EQ(check_tiles(projections(DType::kBF16, 104, 136, columns), {64, 64, 1, 3, 8}), "")
        << columns.size();
}

TEST(WgmmaJoined, AgreesWithoutBiases) {
  EXPECT_EQ(check_tiles(projections(DType::kF16, 128, 192, {96, 32}, false), {64, 32, 1, 3, 8}),
            "");
}

// Two products of an output stand side by side in a tile.
TEST(WgmmaJoined, AgreesForGates) {
  for (const int64_t n : {64, 72, 160})
    for (const WgmmaMatmulSchedule& schedule : std::vector<WgmmaMatmulSchedule>{
             {64, 64, 1, 3, 8}, {128, 128, 2, 3, 8}, {128, 192, 2, 3, 8}, {192, 128, 3, 3, 8}})
      EXPECT_EQ(check_tiles(gated(DType::kBF16, 200, 136, n), schedule), "") << n;
}

// More tiles than blocks: a block takes tiles of several outputs, and its ring goes on.
TEST(WgmmaJoined, AgreesWhereABlockTakesSeveralTiles) {
  for (const int stages : {2, 3, 4})
    EXPECT_EQ(check_tiles(projections(DType::kBF16, 200, 328, {160, 64, 72}),
                          {64, 64, 1, stages, 2}, few_sms()),
              "")
        << stages;
  EXPECT_EQ(check_tiles(gated(DType::kBF16, 200, 200, 160), {64, 64, 1, 3, 2, 2}, few_sms()), "");
}

TEST(WgmmaJoined, AgreesWhereWarpgroupsTakeTilesByTurns) {
  WgmmaMatmulSchedule schedule{64, 64, 2, 3, 2};
  schedule.ping_pong = 1;
  EXPECT_EQ(check_tiles(projections(DType::kBF16, 200, 328, {160, 64, 72}), schedule, few_sms()),
            "");
  EXPECT_EQ(check_tiles(gated(DType::kBF16, 200, 200, 160), schedule, few_sms()), "");
}

TEST(WgmmaJoined, AgreesForAnyNumberOfRows) {
  GraphBuilder b;
  const Dim rows = Dim::symbol(b.symbol({0, 1 << 20}, 70)) * 3;
  const Workload workload = projections(b, DType::kBF16, rows, 136, {160, 64, 72});
  for (const WgmmaMatmulSchedule& schedule : std::vector<WgmmaMatmulSchedule>{
           {64, 64, 1, 3, 8}, {128, 128, 2, 3, 2}, {64, 32, 1, 3, 1, 2}})
    EXPECT_EQ(testing::check_sizes(workload, to_schedule(WgmmaJoinedSchedule{schedule}), few_sms(),
                                   {{0}, {1}, {21}, {22}, {64}, {150}}),
              "");
}

TEST(WgmmaJoined, EveryCandidateAgrees) {
  for (const Workload& workload :
       {projections(DType::kBF16, 136, 200, {256, 72}), gated(DType::kBF16, 136, 200, 264),
        gated(DType::kF16, 70, 8, 8), projections(DType::kF16, 33, 8, {8, 8})}) {
    const auto space = wgmma_joined().candidates(workload, kHopper);
    ASSERT_TRUE(space) << space.error().message;
    EXPECT_FALSE(space->empty());
    for (const Schedule& schedule : *space)
      EXPECT_EQ(check_with_random_inputs(workload, schedule, kHopper), "") << schedule.to_string();
  }
}

// Joined products bring their weights for each tile.
TEST(WgmmaJoined, KeepsNoWeights) {
  const auto space = wgmma_joined().candidates(gated(DType::kBF16, 40'000, 64, 128), kHopper);
  ASSERT_TRUE(space) << space.error().message;
  for (const Schedule& schedule : *space)
    EXPECT_EQ(schedule.get("kept", 0), 0) << schedule.to_string();
  const Schedule keeping = to_schedule(WgmmaJoinedSchedule{{64, 64, 1, 3, 1, 1, 1}});
  EXPECT_FALSE(lower(gated(DType::kBF16, 40'000, 64, 128), keeping, kHopper));
}

// A tile would have half a box of each product.
TEST(WgmmaJoined, RefusesColumnsThatTwoProductsCannotShare) {
  const Schedule schedule = to_schedule(WgmmaJoinedSchedule{{64, 32, 1, 3, 8}});
  EXPECT_FALSE(lower(gated(DType::kBF16, 64, 256, 64), schedule, kHopper));
}

}  // namespace
}  // namespace kiln
