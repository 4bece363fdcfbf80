#include "coordinator/blob_shelf.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

class BlobShelfTest : public ::testing::Test {
 protected:
  Digest put(char name, size_t size = 400) {
    const std::string bytes(size, name);
    shelf_.put(Digest::of(bytes), bytes);
    return Digest::of(bytes);
  }
  bool has(const Digest& digest) { return shelf_.find(digest) != nullptr; }

  BlobShelf shelf_{1'000};
};

TEST_F(BlobShelfTest, KeepsWhatWasUsedLast) {
  const Digest a = put('a'), b = put('b');
  EXPECT_TRUE(has(a));
  const Digest c = put('c');
  EXPECT_TRUE(has(a));
  EXPECT_FALSE(has(b));
  EXPECT_TRUE(has(c));
  EXPECT_LE(shelf_.bytes(), 1'000u);
}

TEST_F(BlobShelfTest, PuttingTwiceCountsOnce) {
  put('a');
  put('a');
  EXPECT_EQ(shelf_.bytes(), 400u);
}

TEST_F(BlobShelfTest, ABlobLargerThanTheShelfIsNotKept) {
  const Digest a = put('a');
  EXPECT_FALSE(has(put('b', 1'001)));
  EXPECT_TRUE(has(a));
}

TEST_F(BlobShelfTest, WhatIsHeldStaysUntilItsTime) {
  const Digest held = put('a');
  shelf_.hold(held, 50);
  for (char name = 'b'; name < 'h'; ++name) put(name);
  EXPECT_TRUE(has(held));
  shelf_.expire(49);
  put('h');
  put('i');
  EXPECT_TRUE(has(held));
  shelf_.expire(50);
  put('j');
  put('k');
  EXPECT_FALSE(has(held));
}

TEST_F(BlobShelfTest, HoldingTooMuchGivesUpTheOldestHeld) {
  const Digest a = put('a');
  shelf_.hold(a, 50);
  const Digest b = put('b');
  shelf_.hold(b, 60);
  const Digest c = put('c');
  EXPECT_FALSE(has(a));
  EXPECT_TRUE(has(b));
  EXPECT_TRUE(has(c));
  shelf_.hold(Digest::of("absent"), 70);
  EXPECT_LE(shelf_.bytes(), 1'000u);
}

}  // namespace
}  // namespace kiln
