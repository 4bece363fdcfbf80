#include "compiler_core/runtime/host_memory.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>

namespace kiln {
namespace {

class HostMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto folder = TempDir::create();
    ASSERT_TRUE(folder) << folder.error().message;
    folder_ = std::make_unique<TempDir>(*std::move(folder));
  }
  void write(const Path& name, const std::string& text) const {
    const Path path = folder_->path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  int64_t available() const { return available_host_memory(folder_->path()); }

  std::unique_ptr<TempDir> folder_;
};

TEST_F(HostMemoryTest, NothingKnownIsNoLimit) {
  EXPECT_EQ(available(), std::numeric_limits<int64_t>::max());
}

TEST_F(HostMemoryTest, TheMachineHasWhatIsAvailableAndFreeSwap) {
  write("proc/meminfo", "MemTotal: 900 kB\nMemAvailable:   100 kB\nSwapFree:  20 kB\n");
  EXPECT_EQ(available(), 120 * 1024);
}

TEST_F(HostMemoryTest, TheTightestControlGroupAboveTheProcessDecides) {
  write("proc/meminfo", "MemAvailable: 100 kB\n");
  write("proc/self/cgroup", "0::/jobs/17\n");
  write("sys/fs/cgroup/jobs/17/memory.max", "max\n");
  write("sys/fs/cgroup/jobs/17/memory.current", "5000\n");
  EXPECT_EQ(available(), 100 * 1024);
  write("sys/fs/cgroup/jobs/memory.max", "9000\n");
  write("sys/fs/cgroup/jobs/memory.current", "6000\n");
  EXPECT_EQ(available(), 3000);
  // Its page cache goes when memory is wanted.
  write("sys/fs/cgroup/jobs/memory.stat", "anon 4000\nfile_mapped 1\nfile 2000\n");
  EXPECT_EQ(available(), 5000);
  write("sys/fs/cgroup/jobs/17/memory.max", "4000\n");
  EXPECT_EQ(available(), 0);
}

TEST_F(HostMemoryTest, TheFirstVersionOfControlGroupsCountsToo) {
  write("proc/self/cgroup", "9:cpu:/\n4:memory:/job\n0::/\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "8000\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "3000\n");
  write("sys/fs/cgroup/memory/job/memory.stat", "cache 7\ntotal_cache 1000\n");
  EXPECT_EQ(available(), 6000);
}

TEST(HostMemory, ThisMachineHasSome) {
  EXPECT_GT(available_host_memory(), 1 << 20);
}

TEST(HostMemory, WhatGrowsGivesBackWhatItHas) {
  const MemoryNeed needs[] = {{"arena", 100, 60}, {"workspace", 10, 20}};
  EXPECT_TRUE(grows(needs));
  EXPECT_TRUE(check_room(needs, 40, "it"));
  const Status refused = check_room(needs, 39, "it");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kOverloaded);
  EXPECT_EQ(refused.error().message.substr(0, 72),
            "the program needs 100 bytes (100 for its arena), and 99 are available on");
  const MemoryNeed endless[] = {{"arena", INT64_MAX, 0}, {"workspace", INT64_MAX, 0}};
  EXPECT_FALSE(check_room(endless, INT64_MAX - 1, "it"));
  const MemoryNeed enough[] = {{"arena", 60, 60}};
  EXPECT_FALSE(grows(enough));
}

}  // namespace
}  // namespace kiln
