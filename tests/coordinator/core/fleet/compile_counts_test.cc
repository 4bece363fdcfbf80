#include "coordinator/core/fleet/compile_counts.h"

#include <gtest/gtest.h>

#include <limits>

namespace kiln {
namespace {

TEST(CompileCounts, EachCompileIsCountedOnce) {
  CompileCounts counts;
  EXPECT_EQ(counts.newly("a", 0), 0);
  EXPECT_EQ(counts.newly("a", 3), 3);
  EXPECT_EQ(counts.newly("a", 3), 0);
  EXPECT_EQ(counts.newly("b", 0), 0);
  EXPECT_EQ(counts.newly("a", 5), 2);
  EXPECT_EQ(counts.newly("b", 4), 4);
}

TEST(CompileCounts, AnotherProcessUnderTheNameStartsAtNought) {
  CompileCounts counts;
  counts.newly("a", 0);
  counts.newly("a", 7);
  EXPECT_EQ(counts.newly("a", 0), 0);
  EXPECT_EQ(counts.newly("a", 9), 9);
  EXPECT_EQ(counts.newly("a", 2), 2);  // its report of 0 was missed
}

TEST(CompileCounts, WhatWasDoneForAnEarlierCoordinatorIsNotOurs) {
  CompileCounts counts;
  EXPECT_EQ(counts.newly("a", 100), 0);
  EXPECT_EQ(counts.newly("a", 101), 1);
}

TEST(CompileCounts, NeitherCountsNorNamesGrowWithoutBound) {
  CompileCounts counts;
  counts.newly("a", 0);
  EXPECT_EQ(counts.newly("a", std::numeric_limits<int64_t>::max()), CompileCounts::kMaxAReport);
  for (size_t i = 0; i < CompileCounts::kMaxWorkers + 5; ++i)
    counts.newly("worker " + std::to_string(i), 0);
  EXPECT_LE(counts.size(), CompileCounts::kMaxWorkers);
}

}  // namespace
}  // namespace kiln
