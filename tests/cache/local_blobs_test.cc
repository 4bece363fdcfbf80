#include "cache/local_blobs.h"

#include <gtest/gtest.h>

#include "cache/blob_store.h"

namespace kiln {
namespace {

class LocalBlobsTest : public ::testing::Test {
 protected:
  static std::string bytes_of(int n) { return std::string(1000, static_cast<char>('a' + n)); }
  static Digest digest_of(int n) { return Digest::of(bytes_of(n)); }

  const TempDir dir_ = *TempDir::create();
};

TEST_F(LocalBlobsTest, WhatWasKeptIsThereAlsoForTheNextProcess) {
  LocalBlobs(dir_.path(), 100'000).keep(digest_of(1), bytes_of(1));
  LocalBlobs blobs(dir_.path(), 100'000);
  EXPECT_EQ(blobs.get(digest_of(1)).value(), bytes_of(1));
  EXPECT_EQ(blobs.get(digest_of(2)).error().code, Code::kNotFound);
  EXPECT_EQ(blobs.hits(), 1);
}

TEST_F(LocalBlobsTest, ADamagedCopyIsNoCopyAndIsReplaced) {
  LocalBlobs blobs(dir_.path(), 100'000);
  blobs.keep(digest_of(1), bytes_of(1));
  const Path file = BlobStore::path_of(dir_.path(), digest_of(1));
  ASSERT_TRUE(write_file(file, "half"));
  EXPECT_EQ(blobs.get(digest_of(1)).error().code, Code::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(file));
  blobs.keep(digest_of(1), bytes_of(1));
  EXPECT_TRUE(blobs.get(digest_of(1)));
}

TEST_F(LocalBlobsTest, ItStaysWithinItsBoundAndTheLatestStay) {
  constexpr int kKept = 25;
  LocalBlobs blobs(dir_.path(), 10'000);
  for (int n = 0; n < kKept; ++n) blobs.keep(digest_of(n), bytes_of(n));
  int there = 0;
  for (int n = 0; n < kKept; ++n) there += blobs.get(digest_of(n)).has_value() ? 1 : 0;
  EXPECT_LE(there, 10);
  EXPECT_GE(there, 5);
  EXPECT_TRUE(blobs.get(digest_of(kKept - 1)));
  EXPECT_FALSE(blobs.get(digest_of(0)));
}

TEST_F(LocalBlobsTest, WithoutABoundNothingIsKept) {
  LocalBlobs blobs(dir_.path(), 0);
  blobs.keep(digest_of(1), bytes_of(1));
  EXPECT_FALSE(blobs.get(digest_of(1)));
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

}  // namespace
}  // namespace kiln
