#include "coordinator/core/tuning/schedule_list.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

TEST(ScheduleList, GivesBackWhatItWasMadeOf) {
  const std::vector<Schedule> schedules = {
      {Family::kPointwise, {{"vector", 4}, {"unroll", 2}}},
      {Family::kPointwise, {{"vector", 8}, {"unroll", -1}}},
      {Family::kPointwise, {{"unroll", 8}, {"vector", 1}}},  // the order of decisions counts
      {Family::kMatmul, {{"vector", 4}, {"unroll", 2}}},
      {Family::kMatmul, {}},
  };
  const ScheduleList list(schedules);
  ASSERT_EQ(list.size(), 5);
  for (int i = 0; i < list.size(); ++i) {
    EXPECT_EQ(list.at(i), schedules[static_cast<size_t>(i)]);
    EXPECT_EQ(list.find(schedules[static_cast<size_t>(i)]), i);
  }
  EXPECT_EQ(list.find({Family::kPointwise, {{"vector", 4}, {"unroll", 3}}}), -1);
  EXPECT_EQ(list.find({Family::kPointwise, {{"vector", 4}}}), -1);
}

}  // namespace
}  // namespace kiln
