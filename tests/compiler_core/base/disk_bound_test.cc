#include "compiler_core/base/disk_bound.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

namespace kiln {
namespace {

class DiskBoundTest : public ::testing::Test {
 protected:
  // Used `age_s` ago.
  Path put(const std::string& name, size_t bytes, int64_t age_s) {
    const Path path = dir_.path() / name;
    EXPECT_TRUE(make_directories(path.parent_path()));
    EXPECT_TRUE(write_file(path, std::string(bytes, 'x')));
    timespec now = {};
    ::clock_gettime(CLOCK_REALTIME, &now);
    const timespec times[2] = {{0, UTIME_OMIT}, {now.tv_sec - age_s, 0}};
    EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    return path;
  }
  static bool there(const Path& path) { return std::filesystem::exists(path); }

  TempDir dir_ = TempDir::create("kiln-bound").value();
};

TEST_F(DiskBoundTest, WithoutABoundEverythingStays) {
  const Path old = put("a/old", 1000, 100'000);
  DiskBound({dir_.path()}, 0).written({}, 1 << 30);
  EXPECT_TRUE(there(old));
}

TEST_F(DiskBoundTest, OtherFoldersAreNotItsBusiness) {
  const Path key = put("signing", 5000, 100'000), old = put("blobs/old", 1000, 100'000);
  DiskBound({dir_.path() / "programs", dir_.path() / "blobs"}, 500).written({}, 1);
  EXPECT_TRUE(there(key));
  EXPECT_FALSE(there(old));
}

TEST_F(DiskBoundTest, WithAnExtensionFilesOfOthersAreLeftAlone) {
  const Path ours = put("a.object", 400, 10'000), other = put("b.txt", 9000, 100'000),
             below = put("c/c.object", 9000, 100'000);
  DiskBound bound({dir_.path()}, 500, {".object", 0});
  bound.written({}, 1);
  EXPECT_TRUE(there(ours)) << "files of others do not count";
  const Path young = put("d.object", 400, 5'000);
  bound.used(std::vector<Path>{ours});
  bound.written({}, 400);
  EXPECT_TRUE(there(ours)) << "used at last";
  EXPECT_FALSE(there(young));
  EXPECT_TRUE(there(other));
  EXPECT_TRUE(there(below));
}

TEST_F(DiskBoundTest, WhatFitsStays) {
  const Path old = put("a/old", 1000, 100'000);
  DiskBound({dir_.path()}, 1000).written({}, 1000);
  EXPECT_TRUE(there(old));
}

TEST_F(DiskBoundTest, WhatWasUsedLongestAgoGoesFirst) {
  const Path older = put("a/older", 400, 30'000), old = put("b/old", 400, 20'000),
             young = put("b/young", 400, 10'000);
  DiskBound({dir_.path()}, 1000).written({}, 400);
  EXPECT_FALSE(there(older));
  EXPECT_TRUE(there(old));
  EXPECT_TRUE(there(young));
}

TEST_F(DiskBoundTest, UsingMovesFilesOnInTheirOrder) {
  const Path manifest = put("programs/p", 100, 30'000), blob = put("blobs/b", 500, 40'000),
             other = put("blobs/c", 500, 10'000);
  DiskBound bound({dir_.path()}, 1000);
  bound.used(std::vector<Path>{manifest, blob});
  bound.written({}, 500);
  EXPECT_TRUE(there(manifest));
  EXPECT_TRUE(there(blob));
  EXPECT_FALSE(there(other));
}

TEST_F(DiskBoundTest, LooksAgainOnceMuchWasWritten) {
  DiskBound bound({dir_.path()}, 100'000);
  bound.written({}, 1);  // the first time it looks
  const Path old = put("a/old", 60'000, 20'000), young = put("a/young", 60'000, 10'000);
  bound.written({}, 10);
  EXPECT_TRUE(there(old)) << "not for a little";
  bound.written({}, 60'000);
  EXPECT_FALSE(there(old));
  EXPECT_TRUE(there(young));
}

TEST_F(DiskBoundTest, WhatIsWrittenGoesInTheOrderThatIsSaid) {
  const Path blob = put("blobs/b", 400, 30), manifest = put("programs/p", 400, 20);
  DiskBound bound({dir_.path()}, 500);
  bound.written(std::vector<Path>{manifest, blob}, 800);
  EXPECT_FALSE(there(manifest)) << "before what it names";
  EXPECT_TRUE(there(blob));
}

}  // namespace
}  // namespace kiln
