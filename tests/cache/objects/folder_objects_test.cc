#include "cache/objects/folder_objects.h"

#include <gtest/gtest.h>

#include "tests/cache/objects/places.h"

namespace kiln {
namespace {

class FolderObjectsTest : public ::testing::Test {
 protected:
  TempDir dir_ = TempDir::create("kiln-objects").value();
};

TEST_F(FolderObjectsTest, AnObjectIsAFileOfItsName) {
  const auto store = FolderObjects::open(dir_.path()).value();
  ASSERT_TRUE(put(*store, "blobs/ab/abcd.17", "content"));
  EXPECT_EQ(read_file(dir_.path() / "blobs/ab/abcd.17").value(), "content");
}

// A network file system that is away leaves an empty folder: what was there is not lost.
TEST_F(FolderObjectsTest, AFolderWithoutItsMarkKnowsNothing) {
  const auto store = FolderObjects::open(dir_.path()).value();
  ASSERT_TRUE(put(*store, "a", "content"));
  const Path away = dir_.path().string() + ".away";
  std::filesystem::rename(dir_.path(), away);
  for (const bool mount_point : {false, true}) {
    if (mount_point) std::filesystem::create_directory(dir_.path());
    EXPECT_EQ(get(*store, "a").error().code, Code::kUnavailable);
    EXPECT_EQ(remove(*store, "a").error().code, Code::kUnavailable);
    EXPECT_EQ(list(*store, "").error().code, Code::kUnavailable);
    EXPECT_EQ(put(*store, "b", "x").error().code, Code::kUnavailable);
  }
  std::filesystem::remove(dir_.path());
  std::filesystem::rename(away, dir_.path());
  EXPECT_EQ(get(*store, "a").value(), "content");
}

TEST_F(FolderObjectsTest, TakesNoFolderOfOtherFiles) {
  ASSERT_TRUE(write_file(dir_.path() / "letter.txt", "dear"));
  EXPECT_EQ(FolderObjects::open(dir_.path()).error().code, Code::kInvalidArgument);
}

TEST_F(FolderObjectsTest, AFolderIsListedAsItsNameWithASlash) {
  const auto store = FolderObjects::open(dir_.path()).value();
  for (const char* name : {"a.b", "a/b", "a-b", "a0"}) ASSERT_TRUE(put(*store, name, "x"));
  std::string names;
  for (std::string after;;) {
    const auto page = list(*store, after, 1).value();
    if (page.empty()) break;
    names += (after = page[0].name) + " ";
  }
  EXPECT_EQ(names, "a-b a.b a/b a0 ");
}

TEST_F(FolderObjectsTest, WhatIsHalfWrittenIsNoObject) {
  const auto store = FolderObjects::open(dir_.path()).value();
  ASSERT_TRUE(put(*store, "a", "content"));
  ASSERT_TRUE(write_file(dir_.path() / "b.tmp.4711.0", "cont"));
  EXPECT_EQ(list(*store, "")->size(), 1u);
}

TEST_F(FolderObjectsTest, OpensByUrlAndSaysWhatIsNone) {
  EXPECT_TRUE(open_objects("file://" + (dir_.path() / "x").string(), {}));
  EXPECT_TRUE(open_objects((dir_.path() / "y").string(), {}));
  for (const char* url : {"", "gs://bucket/x", "https://host/x"})
    EXPECT_EQ(open_objects(url, {}).error().code, Code::kInvalidArgument) << url;
}

}  // namespace
}  // namespace kiln
