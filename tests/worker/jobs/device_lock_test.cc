#include "worker/jobs/job_runner.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace kiln {
namespace {

const auto kNever = [] { return false; };

TEST(DeviceLock, MeasuringExcludesEverybodyElse) {
  const TempDir dir = TempDir::create().value();
  const Path path = dir.path() / "lock";
  std::atomic<int> measuring = 0, compiling = 0;
  std::vector<std::thread> workers;
  for (int worker = 0; worker < 4; ++worker) {
    workers.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        {
          const auto lock = lock_device(path, FileLock::Mode::kShared, kNever);
          ASSERT_TRUE(lock.has_value());
          ++compiling;
          EXPECT_EQ(measuring, 0);
          --compiling;
        }
        const auto lock = lock_device(path, FileLock::Mode::kExclusive, kNever);
        ASSERT_TRUE(lock.has_value());
        EXPECT_EQ(++measuring, 1);
        EXPECT_EQ(compiling, 0);
        --measuring;
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
}

TEST(DeviceLock, WaitingCanBeGivenUp) {
  const TempDir dir = TempDir::create().value();
  const auto held = lock_device(dir.path() / "lock", FileLock::Mode::kExclusive, kNever);
  ASSERT_TRUE(held.has_value());
  const auto given_up =
      lock_device(dir.path() / "lock", FileLock::Mode::kShared, [] { return true; });
  EXPECT_EQ(given_up.error().code, Code::kUnavailable);
}

TEST(DeviceLock, WhoeverWaitsSaysForWhom) {
  const TempDir dir = TempDir::create().value();
  const Path path = dir.path() / "lock";
  const auto held = lock_device(path, FileLock::Mode::kShared, kNever);
  ASSERT_TRUE(held.has_value());
  std::vector<std::string> said;
  const auto given_up = lock_device(
      path, FileLock::Mode::kExclusive, [&] { return !said.empty(); },
      [&](const std::string& what) { said.push_back(what); });
  EXPECT_EQ(given_up.error().code, Code::kUnavailable);
  ASSERT_EQ(said.size(), 2u);
  EXPECT_NE(said[0].find(path.string() + ", held by pid " + std::to_string(::getpid())),
            std::string::npos)
      << said[0];
  EXPECT_EQ(said[1], "") << "it waits no more";
}

TEST(DeviceLock, APathThatCannotBeLockedIsSaidAtOnce) {
  const auto lock = lock_device("/nonexistent/lock", FileLock::Mode::kShared, kNever);
  EXPECT_EQ(lock.error().code, Code::kNotFound);
}

}  // namespace
}  // namespace kiln
