#include "coordinator/core/tuning/candidate_table.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

CandidateTable table_of(int size) {
  std::vector<Schedule> schedules;
  for (int i = 0; i < size; ++i) schedules.push_back({"cpu.pointwise", {{"vector", i}}});
  return CandidateTable(schedules);
}

CandidateTable queued(int size) {
  CandidateTable table = table_of(size);
  for (int i = 0; i < size; ++i) table.want(i);
  return table;
}

TEST(CandidateTable, WantingTwiceIsWantingOnce) {
  CandidateTable table = queued(2);
  table.want(0);
  EXPECT_EQ(table.waiting(), 2);
  EXPECT_EQ(table.take(Line::kDevice, "w", 1, false), (std::vector<int>{0}));
  table.want(0);  // leased
  EXPECT_EQ(table.waiting(), 1);
}

TEST(CandidateTable, OneThatFailedGoesAloneAndElsewhereWhileOthersCanHaveIt) {
  CandidateTable table = table_of(3);
  table.trouble(1).avoid = "w";
  for (int i = 0; i < 3; ++i) table.want(i);
  EXPECT_EQ(table.take(Line::kDevice, "w", 8, true), (std::vector<int>{0, 2}));
  EXPECT_EQ(table.take(Line::kDevice, "w", 8, true), (std::vector<int>{}));
  EXPECT_EQ(table.waiting(), 1);
  EXPECT_EQ(table.take(Line::kDevice, "v", 8, true), (std::vector<int>{1}));
  table.release(1);
  table.want(1);
  EXPECT_EQ(table.take(Line::kDevice, "w", 8, false), (std::vector<int>{1}))
      << "there is nobody else";
}

TEST(CandidateTable, BestIsOfThoseNotRejected) {
  CandidateTable table = table_of(3);
  table.measured(0, 12);
  table.measured(1, 10);
  table.measured(2, 11);
  EXPECT_EQ(table.best_us(), 10);
  table.reject(1, Verdict::kWrongResult);
  EXPECT_EQ(table.best_us(), 11);
  EXPECT_EQ(table.settled(), 3);
}

TEST(CandidateTable, KeepsTheBinariesOfTheBest) {
  CandidateTable table = table_of(3);
  for (int i = 0; i < 3; ++i) {
    table.measured(i, 10 - i);
    table.keep_binary(i, {{}, "binary", {}});
  }
  table.keep_best_binaries(2);
  EXPECT_EQ(table.binary(0), nullptr);
  EXPECT_NE(table.binary(1), nullptr);
  EXPECT_NE(table.binary(2), nullptr);
}

}  // namespace
}  // namespace kiln
