#include "coordinator/core/tuning/schedule_list.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kiln {
namespace {

TEST(ScheduleList, GivesBackWhatItWasMadeOf) {
  const std::vector<Schedule> schedules = {
      {"cpu.pointwise", {{"vector", 4}, {"unroll", 2}}},
      {"cpu.pointwise", {{"vector", 8}, {"unroll", -1}}},
      {"cpu.pointwise", {{"unroll", 8}, {"vector", 1}}},  // the order of decisions counts
      {"cpu.matmul", {{"vector", 4}, {"unroll", 2}}},
      {"cpu.matmul", {}},
  };
  const ScheduleList list(schedules);
  ASSERT_EQ(list.size(), 5);
  for (int i = 0; i < list.size(); ++i) {
    EXPECT_EQ(list.at(i), schedules[static_cast<size_t>(i)]);
    EXPECT_EQ(list.find(schedules[static_cast<size_t>(i)]), i);
  }
  EXPECT_EQ(list.find({"cpu.pointwise", {{"vector", 4}, {"unroll", 3}}}), -1);
  EXPECT_EQ(list.find({"cpu.pointwise", {{"vector", 4}}}), -1);
}

TEST(ScheduleList, SaysHowFarApartSchedulesAre) {
  const ScheduleList list({
      {"cuda.matmul", {{"bm", 64}, {"bn", 128}, {"splits", 0}}},
      {"cuda.matmul", {{"bm", 64}, {"bn", 192}, {"splits", 0}}},
      {"cuda.matmul", {{"bm", 256}, {"bn", 192}, {"splits", 0}}},
      {"cuda.matmul", {{"bm", 64}, {"bn", 128}, {"splits", 1}}},
      {"cuda.matmul.wgmma", {{"bm", 64}, {"bn", 128}, {"splits", 0}}},
  });
  EXPECT_EQ(list.distance(0, 0), 0);
  EXPECT_NEAR(list.distance(0, 1), 0.585, 1e-3);
  EXPECT_NEAR(list.distance(1, 0), 0.585, 1e-3);
  EXPECT_EQ(list.distance(1, 2), 1) << "at most 1 for a decision";
  EXPECT_NEAR(list.distance(0, 2), 1.585, 1e-3);
  EXPECT_TRUE(std::isinf(list.distance(0, 3))) << "another way to do it";
  EXPECT_TRUE(std::isinf(list.distance(0, 4))) << "another template";
}

}  // namespace
}  // namespace kiln
