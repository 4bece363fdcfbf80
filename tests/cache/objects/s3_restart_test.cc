// An S3 service that is killed while a store writes to it.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/cache/objects/s3_servers.h"

namespace kiln {
namespace {

using testing::S3Server;

TEST(S3Restart, WhatSeaweedFSAcknowledgedSurvivesItsDeathAndCallsWaitForItsReturn) {
  constexpr auto kKind = S3Server::Kind::kSeaweedFS;
  if (S3Server::program(kKind).empty())
    GTEST_SKIP() << "SeaweedFS is not installed: `ops/python servers` installs it";
  S3Options options = S3Server::shared(kKind).options();
  options.deadline = std::chrono::minutes(3);  // however slow this machine is today
  const auto store = open_objects("s3://kiln/restart", {options}).value();
  constexpr int kObjects = 400;
  const auto name = [](int i) { return fmt::format("object{:03}", i); };
  std::atomic<int> stored{0}, open{0};
  std::thread writer([&] {
    for (int i = 0; i < kObjects; ++i) {
      while (open >= 8) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++open;
      store->put(name(i), fmt::format("bytes of {}", i), [&](Status put) {
        if (put) ++stored;
        EXPECT_TRUE(put) << put.error().message;
        --open;
      });
    }
  });
  while (stored < kObjects / 4 && !HasFailure())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  S3Server::shared(kKind).kill_and_restart();
  writer.join();
  while (open > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(stored, kObjects) << "a service that comes back within the deadline fails nobody";
  for (int i = 0; i < kObjects; ++i)
    EXPECT_EQ(get(*store, name(i)).value_or(""), fmt::format("bytes of {}", i)) << name(i);
  EXPECT_EQ(list(*store, "")->size(), static_cast<size_t>(kObjects));
}

}  // namespace
}  // namespace kiln
