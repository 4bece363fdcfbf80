#include "client/backoff.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace kiln {
namespace {

using Ms = Backoff::Ms;
constexpr Ms kLong{3'600'000};

TEST(Backoff, NeverComesBackBeforeTheServiceSaid) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Backoff backoff(seed);
    for (int i = 0; i < Backoff::kMaxTries; ++i)
      EXPECT_GE(backoff.next(Ms(700), kLong)->count(), 700);
    EXPECT_FALSE(backoff.next(Ms(700), kLong).has_value()) << "bounded";
  }
}

TEST(Backoff, ThoseRefusedTogetherComeBackApart) {
  std::vector<int64_t> waits;
  for (uint64_t seed = 0; seed < 1'000; ++seed)
    waits.push_back(Backoff(seed).next(Ms(1'000), kLong)->count());
  EXPECT_GT(std::set<int64_t>(waits.begin(), waits.end()).size(), 500u);
  for (int64_t from = 1'000; from < 2'000; from += 100) {
    const auto in_slot =
        std::ranges::count_if(waits, [&](int64_t ms) { return ms >= from && ms < from + 100; });
    EXPECT_NEAR(static_cast<double>(in_slot), 100, 45) << from;
  }
}

TEST(Backoff, WaitsLongerEachTimeUpToABound) {
  int64_t longest_first = 0, longest_last = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Backoff backoff(seed);
    std::vector<int64_t> waits;
    while (const auto wait = backoff.next(Ms(0), kLong)) waits.push_back(wait->count());
    ASSERT_EQ(waits.size(), static_cast<size_t>(Backoff::kMaxTries));
    longest_first = std::max(longest_first, waits.front());
    longest_last = std::max(longest_last, waits.back());
  }
  EXPECT_LE(longest_first, Backoff::kFirst.count());
  EXPECT_GT(longest_last, 20 * Backoff::kFirst.count());
  EXPECT_LE(longest_last, Backoff::kLongest.count());
}

TEST(Backoff, DoesNotOutlastTheDeadline) {
  EXPECT_FALSE(Backoff(1).next(Ms(1'000), Ms(900)).has_value());
  EXPECT_FALSE(Backoff(1).next(Ms(-5), Ms(0)).has_value());
}

}  // namespace
}  // namespace kiln
