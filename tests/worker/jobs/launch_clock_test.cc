#include "worker/jobs/launch_clock.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace kiln {
namespace {

constexpr double kSaidUs = 10'000;  // so that 60 ms are the most
constexpr int kThreads = 2;

TEST(LaunchClock, WhatTookAsLongAsIsSaidContradictsNothing) {
  EXPECT_FALSE(contradicts({.wall_us = 11'000, .cpu_us = 21'000}, kSaidUs, kThreads));
  EXPECT_FALSE(contradicts({.wall_us = 59'000, .cpu_us = 119'000}, kSaidUs, kThreads));
}

// 86 ms on an overloaded machine, of which the threads waited for most.
TEST(LaunchClock, AMachineThatIsBusyElsewhereContradictsNoHonestKernel) {
  EXPECT_FALSE(
      contradicts({.wall_us = 86'000, .cpu_us = 20'000, .waited_us = 66'000}, kSaidUs, kThreads));
  EXPECT_FALSE(
      contradicts({.wall_us = 5e6, .cpu_us = 22'000, .waited_us = 9.7e6}, kSaidUs, kThreads));
}

TEST(LaunchClock, SleepingIsNoWaitForACore) {
  EXPECT_TRUE(
      contradicts({.wall_us = 86'000, .cpu_us = 2'000, .waited_us = 1'000}, kSaidUs, kThreads));
  EXPECT_TRUE(contradicts({.wall_us = 86'000, .cpu_us = 80'000}, kSaidUs, 1));
}

// Its launching threads wait, because it keeps the cores busy itself.
TEST(LaunchClock, WorkInThreadsOfItsOwnIsFound) {
  EXPECT_TRUE(
      contradicts({.wall_us = 86'000, .cpu_us = 170'000, .waited_us = 80'000}, kSaidUs, kThreads));
}

// Which of them there are depends on the machine, but not what they add up to.
TEST(LaunchClock, CountsWhatAProcessDidSinceItWasStarted) {
  const LaunchClock clock(getpid());
  std::atomic<uint64_t> sum{0};
  std::thread busy([&] {  // its time counts when it has ended, too
    for (uint64_t i = 0; i < 20'000'000; ++i) sum += i;
  });
  busy.join();
  const LaunchCost took = clock.elapsed();
  EXPECT_GT(took.wall_us, 0);
  EXPECT_GT(took.cpu_us, 1'000) << "twenty million additions take longer";
  EXPECT_LT(took.cpu_us, took.wall_us * 1.5 + 10'000) << "one thread worked, one waited for it";
  EXPECT_GE(took.waited_us, 0);
}

// Both on one core: each is ready while the other runs.
TEST(LaunchClock, AThreadThatIsReadyAndHasNoCoreWaits) {
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  std::atomic<bool> stop{false};
  std::thread rival([&] {
    while (!stop) {
    }
  });
  const LaunchClock clock(getpid());
  LaunchCost took;
  do took = clock.elapsed();
  while (took.cpu_us < 200'000);
  stop = true;
  rival.join();
  ASSERT_EQ(sched_setaffinity(0, sizeof all, &all), 0);
  if (took.waited_us == 0) GTEST_SKIP() << "this system does not count waits";
  EXPECT_GT(took.waited_us, 10'000);
}

}  // namespace
}  // namespace kiln
