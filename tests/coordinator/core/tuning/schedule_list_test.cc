#include "coordinator/core/tuning/schedule_list.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace kiln
