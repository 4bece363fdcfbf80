#include "compiler_core/base/file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>

namespace kiln {
namespace {

// A number that no process has: one that has just ended.
pid_t nobody() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

TEST(Unpublished, OfADeadProcessGoesOfALivingOneStays) {
  const TempDir dir = TempDir::create().value();
  const Path dead = dir.path() / ("a.json.tmp." + std::to_string(nobody()) + ".3");
  const Path alive = dir.path() / ("a.json.tmp." + std::to_string(::getpid()) + ".3");
  for (const Path& file : {dead, alive}) ASSERT_TRUE(write_file(file, "half"));
  remove_unpublished(dir.path());
  EXPECT_FALSE(std::filesystem::exists(dead));
  EXPECT_TRUE(std::filesystem::exists(alive));
}

TEST(Unpublished, AfterAnHourTheNumberIsSomebodyElses) {
  const TempDir dir = TempDir::create().value();
  const Path file = dir.path() / ("a.json.tmp." + std::to_string(::getpid()) + ".3");
  ASSERT_TRUE(write_file(file, "half"));
  const auto now = std::filesystem::file_time_type::clock::now();
  std::filesystem::last_write_time(file, now - std::chrono::minutes(61));
  remove_unpublished(dir.path());
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(Unpublished, WhatHasAnotherNameIsNobodysConcern) {
  const TempDir dir = TempDir::create().value();
  const std::string pid = std::to_string(nobody());
  for (const char* name : {"a.json", ".tmp.", "a.tmp.x.1"})
    ASSERT_TRUE(write_file(dir.path() / name, "whole"));
  ASSERT_TRUE(write_file(dir.path() / ("a.tmp." + pid), "whole"));
  std::filesystem::create_directory(dir.path() / "below");
  ASSERT_TRUE(write_file(dir.path() / "below" / ("a.tmp." + pid + ".1"), "half"));
  remove_unpublished(dir.path());
  remove_unpublished(dir.path() / "absent");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 5);
  EXPECT_FALSE(std::filesystem::is_empty(dir.path() / "below"));
}

}  // namespace
}  // namespace kiln
