#include "coordinator/spare_memory.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

constexpr double kMiB = 1 << 20;

class SpareMemoryTest : public ::testing::Test {
 protected:
  // A second in which the loop turned so often, and what the process then had.
  bool second(int64_t turns, double resident_mib) {
    turns_ += turns;
    resident_ = resident_mib * kMiB;
    return spare_.tick(turns_);
  }

  double resident_ = 0, after_ = 20 * kMiB;
  int64_t turns_ = 0;
  SpareMemory spare_{[this] { return resident_; }, [this] { resident_ = after_; }};
};

TEST_F(SpareMemoryTest, WhatABurstLeftGoesBackWhenItIsOver) {
  EXPECT_FALSE(second(50, 18));
  EXPECT_FALSE(second(5'000, 90)) << "not while there is much to do";
  EXPECT_FALSE(second(5'000, 130));
  EXPECT_TRUE(second(50, 130));
  EXPECT_EQ(resident_, 20 * kMiB);
  EXPECT_FALSE(second(50, 20));
}

TEST_F(SpareMemoryTest, WhatIsInUseIsTriedOnceAndNotEverySecond) {
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

TEST(SpareMemory, ThisProcessHasSome) {
  SpareMemory spare;
  EXPECT_FALSE(spare.tick(0));
}

}  // namespace
}  // namespace kiln
