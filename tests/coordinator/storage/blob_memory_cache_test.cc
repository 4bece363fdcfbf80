#include "coordinator/storage/blob_memory_cache.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

class BlobMemoryCacheTest : public ::testing::Test {
 protected:
  Digest put(char name, size_t size = 400) {
    const std::string bytes(size, name);
    memory_.put(Digest::of(bytes), bytes);
    return Digest::of(bytes);
  }
  bool has(const Digest& digest) { return memory_.find(digest) != nullptr; }

  BlobMemoryCache memory_{1'000};
};

TEST_F(BlobMemoryCacheTest, KeepsWhatWasUsedLast) {
  const Digest a = put('a'), b = put('b');
  EXPECT_TRUE(has(a));
  const Digest c = put('c');
  EXPECT_TRUE(has(a));
  EXPECT_FALSE(has(b));
  EXPECT_TRUE(has(c));
  EXPECT_LE(memory_.bytes(), 1'000u);
}

TEST_F(BlobMemoryCacheTest, PuttingTwiceCountsOnce) {
  put('a');
  put('a');
  EXPECT_EQ(memory_.bytes(), 400u);
}

TEST_F(BlobMemoryCacheTest, ABlobLargerThanTheMemoryIsNotKept) {
  const Digest a = put('a');
  EXPECT_FALSE(has(put('b', 1'001)));
  EXPECT_TRUE(has(a));
}

TEST_F(BlobMemoryCacheTest, WhatIsHeldStaysUntilItsTime) {
  const Digest held = put('a');
  memory_.hold(held, 50);
  for (char name = 'b'; name < 'h'; ++name) put(name);
  EXPECT_TRUE(has(held));
  memory_.expire(49);
  put('h');
  put('i');
  EXPECT_TRUE(has(held));
  memory_.expire(50);
  put('j');
  put('k');
  EXPECT_FALSE(has(held));
}

TEST_F(BlobMemoryCacheTest, HoldingTooMuchGivesUpTheOldestHeld) {
  const Digest a = put('a');
  memory_.hold(a, 50);
  const Digest b = put('b');
  memory_.hold(b, 60);
  const Digest c = put('c');
  EXPECT_FALSE(has(a));
  EXPECT_TRUE(has(b));
  EXPECT_TRUE(has(c));
  memory_.hold(Digest::of("absent"), 70);
  EXPECT_LE(memory_.bytes(), 1'000u);
}

}  // namespace
}  // namespace kiln
