#include "compiler_core/plan/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace kiln {
namespace {

bool overlap_in_time(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

TEST(PlanArena, BuffersLiveAtOnceNeverOverlap) {
  std::mt19937_64 random(7);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 300; ++round) {
    std::vector<Lifetime> lives;
    for (int64_t i = pick(0, 40); i > 0; --i) {
      const int first = static_cast<int>(pick(0, 30));
      lives.push_back({pick(0, 1000), first, first + static_cast<int>(pick(0, 10))});
    }
    const ArenaPlan plan = plan_arena(lives);
    ASSERT_EQ(plan.offsets.size(), lives.size());
    for (size_t i = 0; i < lives.size(); ++i) {
      ASSERT_EQ(plan.offsets[i] % kBufferAlignment, 0);
      ASSERT_LE(plan.offsets[i] + lives[i].bytes, plan.bytes);
      for (size_t j = 0; j < i; ++j) {
        const bool apart = plan.offsets[i] + lives[i].bytes <= plan.offsets[j] ||
                           plan.offsets[j] + lives[j].bytes <= plan.offsets[i];
        ASSERT_TRUE(apart || !overlap_in_time(lives[i], lives[j])) << "round " << round;
      }
    }
  }
}

TEST(PlanArena, AChainNeedsRoomForTwo) {
  std::vector<Lifetime> lives;
  for (int i = 0; i < 10; ++i) lives.push_back({640, i, i + 1});
  EXPECT_EQ(plan_arena(lives).bytes, 2 * 640);
}

// Thousands are placed one launch after the other: sound, and hardly more than what is alive.
TEST(PlanArena, ThousandsOfBuffersArePlacedOneLaunchAfterTheOther) {
  std::mt19937_64 random(11);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  std::vector<Lifetime> lives;
  for (int first = 0; first < 4500; ++first)
    lives.push_back({pick(0, 8) * 1000, first, first + static_cast<int>(pick(0, 12))});
  std::shuffle(lives.begin(), lives.end(), random);
  const ArenaPlan plan = plan_arena(lives);
  for (size_t i = 0; i < lives.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const bool apart = plan.offsets[i] + lives[i].bytes <= plan.offsets[j] ||
                         plan.offsets[j] + lives[j].bytes <= plan.offsets[i];
      ASSERT_TRUE(apart || !overlap_in_time(lives[i], lives[j]));
    }
  EXPECT_LT(static_cast<double>(plan.bytes), 1.5 * static_cast<double>(most_live_bytes(lives)));
}

TEST(PlanArena, ALongChainNeedsRoomForTwo) {
  std::vector<Lifetime> lives;
  for (int i = 0; i < 100'000; ++i) lives.push_back({640, i, i + 1});
  EXPECT_EQ(plan_arena(lives).bytes, 2 * 640);
}

TEST(PlanArena, NothingNeedsNothing) {
  EXPECT_EQ(plan_arena({}).bytes, 0);
}

}  // namespace
}  // namespace kiln
