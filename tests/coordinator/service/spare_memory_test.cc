#include "coordinator/service/spare_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace kiln {
namespace {

constexpr double kMiB = 1 << 20;

class SpareMemoryTest : public ::testing::Test {
 protected:
  // A second in which the loop turned so often, and what was in RAM for nothing after it.
  bool second(int64_t turns, double spare_mib) {
    turns_ += turns;
    bytes_ = spare_mib * kMiB;
    return spare_.tick(turns_);
  }

  double bytes_ = 0, after_ = 20 * kMiB;
  int64_t turns_ = 0;
  SpareMemory spare_{[this] { return bytes_; }, [this] { bytes_ = after_; }};
};

TEST_F(SpareMemoryTest, WhatABurstLeftGoesBackWhenItIsOver) {
  EXPECT_FALSE(second(50, 18));
  EXPECT_FALSE(second(5'000, 90)) << "not while there is much to do";
  EXPECT_FALSE(second(5'000, 130));
  EXPECT_TRUE(second(50, 130));
  EXPECT_EQ(bytes_, 20 * kMiB);
  EXPECT_FALSE(second(50, 20));
}

TEST_F(SpareMemoryTest, WhatCannotGoBackIsTriedOnceAndNotEverySecond) {
  EXPECT_FALSE(second(50, 18));
  after_ = 100 * kMiB;
  EXPECT_TRUE(second(50, 110));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(second(50, 105));
  EXPECT_TRUE(second(50, 116));
}

TEST_F(SpareMemoryTest, GrowthCountsFromTheLeastThereWas) {
  EXPECT_FALSE(second(50, 40));
  EXPECT_FALSE(second(50, 25));
  EXPECT_TRUE(second(50, 41));
}

TEST_F(SpareMemoryTest, ABurstAtTheVeryStartCountsToo) {
  EXPECT_FALSE(second(5'000, 18));
  EXPECT_FALSE(second(5'000, 130));
  EXPECT_TRUE(second(50, 130));
}

// Freed a while after the burst, when the process had calmed down already: in RAM all the same.
TEST(SpareMemory, WhatIsFreedLaterGoesBackToo) {
  SpareMemory spare;
  EXPECT_FALSE(spare.tick(0));
  constexpr size_t kBytes = 100'000, kCount = 600;  // each too small to be mapped by itself
  std::vector<std::unique_ptr<char[]>> burst;
  for (size_t i = 0; i < kCount; ++i) {
    burst.push_back(std::make_unique<char[]>(kBytes));
    std::fill_n(burst.back().get(), kBytes, 'x');
  }
  EXPECT_FALSE(spare.tick(0)) << "all of it is in use";
  const auto last = std::move(burst.back());  // keeps the heap from shrinking by itself
  burst.clear();
  EXPECT_TRUE(spare.tick(0));
  EXPECT_FALSE(spare.tick(0));
  EXPECT_EQ(last[0], 'x');
}

TEST(SpareMemory, ThisProcessHasSome) {
  SpareMemory spare;
  EXPECT_FALSE(spare.tick(0));
}

}  // namespace
}  // namespace kiln
