#include "compiler_core/runtime/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace kiln {
namespace {

// Counts how often each block was run, and by which threads.
struct Counts {
  explicit Counts(int64_t blocks) : runs(static_cast<size_t>(blocks)) {}
  std::vector<std::atomic<int>> runs;
  std::atomic<int> highest_thread{0};

  static void body(void* context, int64_t begin, int64_t end, int thread) {
    auto& counts = *static_cast<Counts*>(context);
    for (int64_t i = begin; i < end; ++i) counts.runs[static_cast<size_t>(i)].fetch_add(1);
    for (int seen = counts.highest_thread; thread > seen;)
      if (counts.highest_thread.compare_exchange_weak(seen, thread)) break;
  }
  bool each_block_once() const {
    for (const std::atomic<int>& count : runs)
      if (count != 1) return false;
    return true;
  }
};

TEST(ThreadPool, RunsEveryBlockOnceWhateverTheCounts) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    for (const int64_t blocks : {0, 1, 2, 3, 15, 16, 17, 1000, 12345}) {
      Counts counts(blocks);
      pool.run(blocks, Counts::body, &counts);
      EXPECT_TRUE(counts.each_block_once()) << threads << " threads, " << blocks << " blocks";
      EXPECT_LT(counts.highest_thread, threads);
    }
  }
}

TEST(ThreadPool, LaunchesInARowDoNotMix) {
  ThreadPool pool(4);
  for (int launch = 0; launch < 5000; ++launch) {
    Counts counts(1 + launch % 70);
    pool.run(1 + launch % 70, Counts::body, &counts);
    ASSERT_TRUE(counts.each_block_once()) << "launch " << launch;
  }
}

// Plain memory: what one launch writes, the next reads on other threads. TSan watches.
TEST(ThreadPool, ALaunchSeesWhatTheOneBeforeWrote) {
  ThreadPool pool(3);
  std::vector<int64_t> values(999, 0);
  const auto shift = [](void* context, int64_t begin, int64_t end, int) {
    auto& [from, to] =
        *static_cast<std::pair<std::vector<int64_t>*, std::vector<int64_t>*>*>(context);
    const int64_t size = static_cast<int64_t>(from->size());
    for (int64_t i = begin; i < end; ++i)
      (*to)[static_cast<size_t>(i)] = (*from)[static_cast<size_t>((i + 500) % size)] + 1;
  };
  std::vector<int64_t> other(values.size());
  for (int launch = 0; launch < 200; ++launch) {
    std::pair<std::vector<int64_t>*, std::vector<int64_t>*> pair{&values, &other};
    pool.run(static_cast<int64_t>(values.size()), shift, &pair);
    std::swap(values, other);
  }
  for (const int64_t value : values) EXPECT_EQ(value, 200);
}

TEST(ThreadPool, WakesWorkersThatWentToSleep) {
  ThreadPool pool(2);
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // far beyond the spin
    // Two blocks that wait for each other: done only if two threads run them.
    std::atomic<int> arrived{0};
    pool.run(
        2,
        [](void* context, int64_t begin, int64_t end, int) {
          auto& here = *static_cast<std::atomic<int>*>(context);
          for (int64_t block = begin; block < end; ++block) {
            here.fetch_add(1);
            while (here.load() < 2) std::this_thread::yield();
          }
        },
        &arrived);
    EXPECT_EQ(arrived, 2);
  }
}

TEST(ThreadPool, CountsOnlyTheCoresWeMayUse) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  EXPECT_EQ(ThreadPool().threads(), CPU_COUNT(&all));
  int first = 0;
  while (!CPU_ISSET(first, &all)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(ThreadPool().threads(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof all, &all), 0);
}

TEST(ThreadPool, GivesEachThreadAlignedScratchOfItsOwn) {
  ThreadPool pool(3);
  EXPECT_EQ(pool.scratch(0), nullptr);
  pool.reserve_scratch(100);
  pool.reserve_scratch(5 << 20);
  for (int thread = 0; thread < 3; ++thread) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pool.scratch(thread)) % 64, 0u);
    static_cast<char*>(pool.scratch(thread))[(5 << 20) - 1] = 1;
    for (int other = 0; other < thread; ++other)
      EXPECT_NE(pool.scratch(thread), pool.scratch(other));
  }
}

}  // namespace
}  // namespace kiln
