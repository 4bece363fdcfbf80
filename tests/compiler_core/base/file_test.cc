#include "compiler_core/base/file.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

TEST(File, PublishedFileIsWholeAndLeavesNoTemp) {
  auto dir = TempDir::create();
  ASSERT_TRUE(dir);
  const Path path = dir->path() / "blob";
  ASSERT_TRUE(publish_file(path, "one"));
  ASSERT_TRUE(publish_file(path, "two"));
  EXPECT_EQ(*read_file(path), "two");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir->path()), {}), 1);
}

TEST(File, ErrorsSayWhatToDoNext) {
  EXPECT_EQ(read_file("/nonexistent/file").error().code, Code::kNotFound);
  EXPECT_EQ(publish_file("/nonexistent/dir/file", "x").error().code, Code::kNotFound);
}

TEST(File, ADirectoryIsNoFileToRead) {
  const TempDir dir = TempDir::create().value();
  EXPECT_FALSE(read_file(dir.path()));
}

TEST(File, AFullDiskIsUnavailableAndLeavesNothing) {
  // /dev/full accepts an open and refuses every write with ENOSPC.
  const auto status = write_file("/dev/full", "x");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kUnavailable);
}

TEST(FileLock, ExclusiveKeepsOthersOut) {
  auto dir = TempDir::create();
  ASSERT_TRUE(dir);
  const Path path = dir->path() / "lock";
  {
    auto held = FileLock::acquire(path, FileLock::Mode::kExclusive);
    ASSERT_TRUE(held);
    const auto second = FileLock::try_acquire(path, FileLock::Mode::kShared);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, Code::kUnavailable);
  }
  auto shared = FileLock::try_acquire(path, FileLock::Mode::kShared);
  ASSERT_TRUE(shared);
  EXPECT_TRUE(FileLock::try_acquire(path, FileLock::Mode::kShared));
  EXPECT_FALSE(FileLock::try_acquire(path, FileLock::Mode::kExclusive));
}

}  // namespace
}  // namespace kiln
