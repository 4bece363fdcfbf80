#include "cache/blob_store.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace kiln {
namespace {

class BlobStoreTest : public ::testing::Test {
 protected:
  Path path_of(const Digest& digest) const {
    return dir_.path() / digest.hex().substr(0, 2) / digest.hex();
  }
  Path aside(const Digest& digest) const { return dir_.path() / "quarantine" / digest.hex(); }

  TempDir dir_ = TempDir::create("kiln-blobs").value();
  std::unique_ptr<BlobStore> store_ = BlobStore::open(dir_.path()).value();
};

TEST_F(BlobStoreTest, GivesBackWhatWasPut) {
  for (const std::string& bytes : {std::string(), std::string("x"), std::string(1 << 20, '\0')}) {
    const Digest digest = store_->put(bytes).value();
    EXPECT_EQ(digest, Digest::of(bytes));
    EXPECT_TRUE(store_->contains(digest));
    EXPECT_EQ(store_->get(digest).value(), bytes);
  }
}

TEST_F(BlobStoreTest, LiesUnderTheDigestOfItsContent) {
  const Digest digest = store_->put("content").value();
  EXPECT_EQ(read_file(path_of(digest)).value(), "content");
}

TEST_F(BlobStoreTest, SaysWhenThereIsNone) {
  const Digest nowhere = Digest::of("never put");
  EXPECT_FALSE(store_->contains(nowhere));
  EXPECT_EQ(store_->get(nowhere).error().code, Code::kNotFound);
  EXPECT_TRUE(store_->remove(nowhere));
}

TEST_F(BlobStoreTest, ASecondPutLeavesTheFileAlone) {
  const Digest digest = store_->put("content").value();
  struct stat first = {}, second = {};
  ASSERT_EQ(::stat(path_of(digest).c_str(), &first), 0);
  EXPECT_EQ(store_->put("content").value(), digest);
  ASSERT_EQ(::stat(path_of(digest).c_str(), &second), 0);
  EXPECT_EQ(first.st_ino, second.st_ino);
}

TEST_F(BlobStoreTest, RemoveRemoves) {
  const Digest digest = store_->put("content").value();
  EXPECT_TRUE(store_->remove(digest));
  EXPECT_EQ(store_->get(digest).error().code, Code::kNotFound);
}

TEST_F(BlobStoreTest, EveryFlippedBitIsNoticedAndTheBlobSetAside) {
  const std::string bytes = "not long";
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    const Digest digest = store_->put(bytes).value();
    std::string bad = bytes;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    ASSERT_TRUE(write_file(path_of(digest), bad));
    EXPECT_EQ(store_->get(digest).error().code, Code::kCorruption);
    EXPECT_EQ(store_->get(digest).error().code, Code::kNotFound) << "once is enough";
    EXPECT_EQ(read_file(aside(digest)).value(), bad);
    EXPECT_EQ(store_->corrupt_count(), static_cast<int64_t>(bit) + 1);
  }
}

TEST_F(BlobStoreTest, TruncatedAndExtendedBlobsAreNoticed) {
  const Digest digest = store_->put("content").value();
  for (const char* bad : {"", "conten", "contents"}) {
    ASSERT_TRUE(write_file(path_of(digest), bad));
    EXPECT_EQ(store_->get(digest).error().code, Code::kCorruption);
    EXPECT_EQ(store_->put("content").value(), digest);
    EXPECT_EQ(store_->get(digest).value(), "content");
  }
}

TEST_F(BlobStoreTest, APutReplacesADamagedCopyNobodyHasReadYet) {
  const Digest digest = store_->put("content").value();
  ASSERT_TRUE(write_file(path_of(digest), "damaged"));
  EXPECT_EQ(store_->put("content").value(), digest);
  EXPECT_EQ(store_->get(digest).value(), "content");
  EXPECT_EQ(store_->corrupt_count(), 1);
}

TEST_F(BlobStoreTest, LeftoversOfAKilledProcessGoAndBlobsStay) {
  const Digest digest = store_->put("content").value();
  const std::string theirs = ".tmp.4711.0", ours = fmt::format(".tmp.{}.7", ::getpid());
  const Path other = Path(path_of(digest)) += theirs, writing = Path(path_of(digest)) += ours;
  ASSERT_TRUE(write_file(other, "cont"));
  ASSERT_TRUE(write_file(writing, "cont"));
  store_->remove_leftovers(digest.bytes[0], 0);
  EXPECT_FALSE(std::filesystem::exists(other));
  EXPECT_TRUE(std::filesystem::exists(writing)) << "it may be ours, being written";
  store_->remove_leftovers(digest.bytes[0], INT64_MAX);
  EXPECT_FALSE(std::filesystem::exists(writing)) << "a process of our number died before";
  EXPECT_EQ(store_->get(digest).value(), "content");
}

TEST_F(BlobStoreTest, AShelfListsItsFilesWithSizeAndAge) {
  const Digest digest = store_->put("content").value();
  ASSERT_TRUE(write_file(path_of(digest).parent_path() / "something else", "xy"));
  const std::vector<BlobStore::File> files = store_->list(digest.bytes[0]);
  ASSERT_EQ(files.size(), 2u);
  const BlobStore::File& blob = files[0].digest ? files[0] : files[1];
  const BlobStore::File& foreign = files[0].digest ? files[1] : files[0];
  EXPECT_EQ(blob.digest, digest);
  EXPECT_EQ(blob.bytes, 7);
  EXPECT_NEAR(static_cast<double>(blob.written_ms), static_cast<double>(::time(nullptr)) * 1000,
              60'000);
  EXPECT_EQ(foreign.bytes, 2);
  EXPECT_TRUE(store_->list(digest.bytes[0] ^ 1).empty());
}

TEST_F(BlobStoreTest, TwoStoresShareOneRoot) {
  auto other = BlobStore::open(dir_.path()).value();
  const Digest digest = store_->put("content").value();
  EXPECT_EQ(other->put("content").value(), digest);
  EXPECT_EQ(other->get(digest).value(), "content");
}

// A reader that finds damage moves the file away while a writer repairs it: what was repaired must
// not be moved.
TEST_F(BlobStoreTest, ARepairedBlobStaysUnderConcurrentReaders) {
  const std::string bytes(1 << 20, 'x');  // large, so that checking it takes a while
  std::string damaged = bytes;
  damaged.back() = 'y';
  const Digest digest = store_->put(bytes).value();
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i)
    readers.emplace_back([&] {
      while (!stop) EXPECT_EQ(store_->get(digest).value_or(bytes), bytes);
    });
  for (int round = 0; round < 30; ++round) {
    ASSERT_TRUE(write_file(path_of(digest), damaged));
    ASSERT_TRUE(store_->put(bytes));
    ::usleep(2000);  // a reader that saw the damage may be at work still
    EXPECT_EQ(store_->get(digest).value_or("moved away"), bytes);
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace kiln
