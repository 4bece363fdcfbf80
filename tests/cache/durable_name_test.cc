// A blob is stored when its name is durable, not when its file is there: syncs that fail, and what
// the next put makes of the file that such a one left.
#include <gtest/gtest.h>

#include "cache/blob_store.h"
#include "tests/cache/samples.h"
#include "tests/support/watched_sync.h"

namespace kiln {
namespace {

using namespace samples;  // NOLINT: the vocabulary of these tests
using testing::WatchedSync;

class DurableName : public ::testing::Test {
 protected:
  ~DurableName() override { disk_.refuse({}); }
  const TempDir dir_ = TempDir::create("kiln-durable").value();
  WatchedSync& disk_ = WatchedSync::instance();
};

TEST_F(DurableName, APutThatFindsAnUnsyncedFileSyncsItsFolder) {
  const Path root = dir_.path() / "blobs";
  const Path folder = root / Digest::of(blob(1)).hex().substr(0, 2);
  auto store = BlobStore::open(root).value();
  disk_.refuse(folder);
  EXPECT_EQ(store->put(blob(1)).error().code, Code::kUnavailable);
  ASSERT_TRUE(store->contains(Digest::of(blob(1)))) << "renamed, and no more";
  EXPECT_FALSE(store->put(blob(1))) << "the disk is no better";
  disk_.refuse({});
  EXPECT_TRUE(store->put(blob(1)));
  EXPECT_TRUE(disk_.synced(folder));
}

// As a kill between mkdir and its sync leaves it.
TEST_F(DurableName, TheNameOfAFolderThatIsThereIsSyncedOnce) {
  const Path root = dir_.path() / "blobs";
  auto store = BlobStore::open(root).value();
  const Path folder = root / Digest::of(blob(1)).hex().substr(0, 2);
  disk_.refuse(root);
  EXPECT_FALSE(store->put(blob(1)));
  ASSERT_TRUE(std::filesystem::is_directory(folder));
  EXPECT_FALSE(store->put(blob(1)));
  disk_.refuse({});
  EXPECT_TRUE(store->put(blob(1)));
  EXPECT_TRUE(disk_.synced(root));
  disk_.refuse({});
  EXPECT_TRUE(store->put(blob(1)));
  EXPECT_FALSE(disk_.synced(root));
}

// What a power failure makes of it is found, and mended by the next put.
TEST_F(DurableName, AStoreThatKeepsWhatItCanWaitsForNoDisk) {
  const Path root = dir_.path() / "blobs";
  auto store = BlobStore::open(root, BlobStore::Keeps::kWhileItCan).value();
  const Digest digest = Digest::of(blob(1));
  const Path folder = root / digest.hex().substr(0, 2);
  disk_.refuse(folder);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(store->put(blob(1)));
  EXPECT_FALSE(disk_.synced(folder));
  EXPECT_EQ(store->get(digest).value(), blob(1));
  for (const size_t left : {size_t{0}, blob(1).size() / 2}) {
    ASSERT_TRUE(write_file(folder / digest.hex(), blob(1).substr(0, left)));
    EXPECT_EQ(store->get(digest).error().code, Code::kCorruption);
    EXPECT_TRUE(store->put(blob(1)));
    EXPECT_EQ(store->get(digest).value(), blob(1));
  }
}

TEST_F(DurableName, AKernelWhoseBlobIsNotDurableIsNotStored) {
  auto cache = KernelCache::open(dir_.path()).value();
  disk_.refuse(blob_path(dir_.path(), 1).parent_path());
  EXPECT_FALSE(put_blob(*cache, 1));
  ASSERT_TRUE(std::filesystem::exists(blob_path(dir_.path(), 1)));
  EXPECT_EQ(put_kernel(*cache, 1).error().code, Code::kUnavailable);
  disk_.refuse({});
  EXPECT_EQ(cache->kernel(key("kernel", 1)).error().code, Code::kNotFound);
  ASSERT_TRUE(put_all(*cache, 1));
  EXPECT_TRUE(cache->program(key("program", 1)));
}

}  // namespace
}  // namespace kiln
