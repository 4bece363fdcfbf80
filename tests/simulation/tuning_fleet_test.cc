// How fast fleets tune, by what was measured on a machine with H100s: three models at once from an
// empty cache on one GPU with 16 cores took 20.73 s, with 32 cores 13.99 s.
#include "tests/simulation/tuning_fleet.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <sstream>

namespace kiln::simulation {
namespace {

const FleetWork kThreeModels;

TEST(TuningFleet, TakesWhatWasMeasuredOnOneDevice) {
  FleetCosts costs;
  costs.slots = 8;  // as it was then
  costs.workloads_held = 4;
  const FleetFigures cores16 = tune(parse_shape("1x16"), kThreeModels, costs);
  EXPECT_EQ(cores16.answers, 3);
  EXPECT_NEAR(cores16.seconds, 20.73, 2);
  EXPECT_NEAR(cores16.busy, 0.64, 0.1);
  EXPECT_NEAR(cores16.waited_s, 6.1, 1.5);
  EXPECT_NEAR(tune(parse_shape("1x32"), kThreeModels, costs).seconds, 13.99, 2);
}

TEST(TuningFleet, CoresElsewhereAreAsGoodAsTheDevicesOwn) {
  const FleetFigures own = tune(parse_shape("1x16"), kThreeModels);
  const FleetFigures elsewhere = tune(parse_shape("1x4+12"), kThreeModels);
  EXPECT_LT(elsewhere.seconds, 1.15 * own.seconds);
  EXPECT_LT(elsewhere.leases, 1.5 * static_cast<double>(own.leases));
  EXPECT_EQ(elsewhere.builds, own.builds);
}

// Of 32 cores some 320 s of compilers take 10 s, whatever the devices do.
TEST(TuningFleet, TwoDevicesTakeWholeWorkloadsAndWaitForCompilersAlone) {
  const FleetFigures two = tune(parse_shape("2x32"), kThreeModels);
  const double kernels = kThreeModels.programs * kThreeModels.kernels;
  EXPECT_LT(static_cast<double>(two.opens), 1.1 * kernels);
  EXPECT_LT(static_cast<double>(two.leases), 3 * kernels);
  EXPECT_LT(two.seconds, 1.15 * two.compile_s / 32);
}

TEST(TuningFleet, TwoDevicesAreTwiceAsFastWhereCompilersAreNotTheBound) {
  FleetCosts costs;
  costs.build = 120;
  const FleetFigures one = tune(parse_shape("1x32"), kThreeModels, costs);
  const FleetFigures two = tune(parse_shape("2x32"), kThreeModels, costs);
  EXPECT_GT(one.seconds / two.seconds, 1.8);
  EXPECT_GT(two.busy, 0.85);
}

// With the shares of the fleet that the design names: four building cores a device.
TEST(TuningFleet, TenDevicesWithMostCoresElsewhereAreBusy) {
  FleetWork work;
  work.programs = 20;
  work.kernels = 30;
  work.candidates = 40;
  FleetCosts costs;
  costs.build = 170;
  costs.open = 100;  // large kernels: of small ones four cores build less than a device tries
  costs.try_one = costs.final_one = 45;
  const FleetFigures ten = tune(parse_shape("10x10+2x15"), work, costs);
  EXPECT_EQ(ten.answers, work.programs);
  EXPECT_GT(ten.busy, 0.9);
}

TEST(TuningFleet, WhatIsInReserveIsNotBuilt) {
  FleetCosts costs;
  costs.reserves = 0.2;
  const FleetFigures all = tune(parse_shape("1x16"), kThreeModels);
  for (const char* shape : {"1x16", "1x4+12"}) {
    const FleetFigures fewer = tune(parse_shape(shape), kThreeModels, costs);
    EXPECT_EQ(fewer.answers, 3);
    EXPECT_LT(static_cast<double>(fewer.builds), 0.9 * static_cast<double>(all.builds)) << shape;
    EXPECT_LT(fewer.seconds, 0.95 * all.seconds) << shape;
  }
}

// Forty kernels of eight candidates each in two forms, of which one is twice as slow.
TEST(TuningFleet, WhatIsLikeSomethingFarBehindIsNotBuilt) {
  std::string text;
  for (int kernel = 0; kernel < 40; ++kernel) {
    text += "kernel 0 10 5\n";
    for (int i = 0; i < 8; ++i)
      text += fmt::format("candidate 300 8 {} cuda.fleet shared={} rows={}\n", i % 2 == 0 ? 20 : 10,
                          i % 2, 16 + i);
  }
  std::istringstream lines(text);
  FleetWork work;
  work.programs = 1;
  work.recorded = read_kernels(lines);
  ASSERT_EQ(work.recorded.size(), 40u);
  FleetCosts all;
  all.variants = false;
  for (const char* shape : {"1x16", "2x16", "1x4+12"}) {
    const FleetFigures before = tune(parse_shape(shape), work, all);
    const FleetFigures after = tune(parse_shape(shape), work);
    EXPECT_EQ(before.builds, 320) << shape;
    EXPECT_EQ(after.answers, 1) << shape;
    // Five of eight are needed; the last kernels' others are built while compilers have nothing else.
    EXPECT_LT(after.builds, 240) << shape;
    EXPECT_LT(after.seconds, 0.9 * before.seconds) << shape;
  }
}

TEST(TuningFleet, KernelsAreReadUpToALineThatIsNone) {
  std::istringstream text(
      "kernel 1 2.5 3\ncandidate 100 8 0 cuda.pointwise lanes=8 rows=1\n\nkernel 2 1 1\n");
  const std::vector<RecordedKernel> kernels = read_kernels(text);
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].program, 1);
  EXPECT_EQ(kernels[0].open_ms, 2.5);
  ASSERT_EQ(kernels[0].candidates.size(), 1u);
  EXPECT_EQ(kernels[0].candidates[0].schedule, "cuda.pointwise lanes=8 rows=1");
  EXPECT_EQ(kernels[0].candidates[0].us, 0);
}

TEST(TuningFleet, ShapesHaveNames) {
  const FleetShape shape = parse_shape("10x20+5x16");
  EXPECT_EQ(shape.devices, 10);
  EXPECT_EQ(shape.cores, 2);
  EXPECT_EQ(shape.builders, 5);
  EXPECT_EQ(shape.builder_cores, 16);
  EXPECT_EQ(parse_shape("1x4+12").builders, 1);
  EXPECT_EQ(parse_shape("1x4+12").builder_cores, 12);
  for (const char* none : {"", "1", "x4", "1x", "1x4+", "0x4", "1x4+2x"})
    EXPECT_EQ(parse_shape(none).devices, 0) << none;
}

}  // namespace
}  // namespace kiln::simulation
