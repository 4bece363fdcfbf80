#include "compiler_core/base/clock.h"

#include <gtest/gtest.h>

#include <ctime>

namespace kiln {
namespace {

// Stands still, so that times by it are exact.
struct StoppedClock {
  using duration = std::chrono::microseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<StoppedClock>;
  static constexpr bool is_steady = true;
  static time_point now() { return time_point(std::chrono::seconds(60)); }
};

TEST(ClockTest, TimesKeepTheirFractions) {
  const StoppedClock::time_point now = StoppedClock::now();
  const StoppedClock::time_point start = now - std::chrono::microseconds(1500);
  EXPECT_DOUBLE_EQ(ms_between(start, now), 1.5);
  EXPECT_DOUBLE_EQ(ms_since(start), 1.5);
  EXPECT_DOUBLE_EQ(us_since(start), 1500);
  EXPECT_DOUBLE_EQ(seconds_since(start), 0.0015);
}

TEST(ClockTest, WhatIsLeftIsRoundedUpAndNeverNegative) {
  using Clock = std::chrono::steady_clock;
  EXPECT_EQ(ms_until(Clock::now() - std::chrono::hours(1)), 0);
  EXPECT_EQ(ms_until(Clock::now()), 0);
  const Clock::time_point deadline = Clock::now() + std::chrono::hours(1);
  const int left_ms = ms_until(deadline);
  EXPECT_LE(left_ms, 3'600'000);
  EXPECT_GE(Clock::now() + std::chrono::milliseconds(left_ms), deadline);
  EXPECT_EQ(ms_until(Clock::now() + std::chrono::hours(24 * 365)), 1'000'000'000);
}

TEST(ClockTest, UnixTimeIsThatOfTheSystem) {
  const int64_t before_s = std::time(nullptr);
  const int64_t now_ms = unix_ms();
  EXPECT_GE(now_ms / 1000 + 1, before_s);  // time() reads a clock that lags by a tick
  EXPECT_LE(now_ms / 1000, std::time(nullptr) + 1);
}

}  // namespace
}  // namespace kiln
