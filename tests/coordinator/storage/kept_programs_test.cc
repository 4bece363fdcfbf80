#include "coordinator/storage/kept_programs.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

const Digest kA = Digest::of("a");
constexpr int64_t kFirst = KeptPrograms::kFirstMs, kLongest = KeptPrograms::kLongestMs;
using Programs = std::vector<Digest>;

TEST(KeptPrograms, AreGivenUpOnceTheirTimeIsOver) {
  KeptPrograms kept;
  kept.keep(1000, kA);
  EXPECT_EQ(kept.take_due(999 + kFirst), Programs());
  EXPECT_EQ(kept.take_due(1000 + kFirst), Programs{kA});
  EXPECT_EQ(kept.take_due(1001 + kFirst), Programs()) << "once";
}

TEST(KeptPrograms, WaitNoLongerOnceTheStoreIsBack) {
  KeptPrograms kept;
  for (int64_t now_ms : {0, 100'000, 300'000}) {  // each failed store makes the wait longer
    kept.keep(now_ms, kA);
    (void)kept.take_due(now_ms + kLongest);
  }
  kept.keep(500'000, kA);
  EXPECT_EQ(kept.take_due(500'001), Programs());
  kept.end_waits(500'002);
  EXPECT_EQ(kept.take_due(500'002), Programs{kA});
  EXPECT_EQ(kept.take_due(500'003), Programs()) << "once";
  kept.keep(500'004, kA);
  EXPECT_EQ(kept.take_due(500'004 + 2 * kFirst), Programs{kA}) << "long waits are of the past";
}

TEST(KeptPrograms, WaitLongerEachTimeThatTheyAreNotStored) {
  KeptPrograms kept;
  int64_t now_ms = 0;
  for (int64_t wait_ms = kFirst; wait_ms < 3 * kLongest; wait_ms *= 2) {
    kept.keep(now_ms, kA);
    const int64_t expected_ms = std::min(wait_ms, kLongest);
    EXPECT_EQ(kept.take_due(now_ms + expected_ms - 1), Programs());
    now_ms += expected_ms;
    EXPECT_EQ(kept.take_due(now_ms), Programs{kA}) << wait_ms;
  }
  EXPECT_EQ(kept.take_due(now_ms + kLongest), Programs());
  kept.keep(now_ms + kLongest, kA);
  EXPECT_EQ(kept.take_due(now_ms + kLongest + kFirst), Programs{kA}) << "long ago";
}

TEST(KeptPrograms, WhatIsStoredIsNoneOfThem) {
  KeptPrograms kept;
  kept.keep(0, kA);
  EXPECT_TRUE(kept.stored(kA));
  EXPECT_FALSE(kept.stored(kA));
  EXPECT_EQ(kept.take_due(kLongest), Programs());
}

TEST(KeptPrograms, AreBounded) {
  KeptPrograms kept;
  for (size_t i = 0; i <= KeptPrograms::kMost; ++i)
    kept.keep(static_cast<int64_t>(i), Digest::of(std::to_string(i)));
  EXPECT_EQ(kept.take_due(0), Programs{Digest::of("0")}) << "early, but not for ever";
}

}  // namespace
}  // namespace kiln
