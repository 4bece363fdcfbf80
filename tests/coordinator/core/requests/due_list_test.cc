#include "coordinator/core/requests/due_list.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

const Digest kA = Digest::of("a"), kB = Digest::of("b");

TEST(DueList, GivesWhatIsDueTheOldestFirstAndOnce) {
  DueList list;
  list.add(30, kB);
  list.add(10, kA);
  EXPECT_FALSE(list.take(9));
  EXPECT_EQ(list.take(30), kA);
  EXPECT_EQ(list.take(30), kB);
  EXPECT_FALSE(list.take(1'000));
}

TEST(DueList, TheSameReminderTwiceIsOne) {
  DueList list;
  list.add(10, kA);
  list.add(10, kA);
  list.add(20, kA);
  EXPECT_EQ(list.take(50), kA);
  EXPECT_EQ(list.take(50), kA);
  EXPECT_FALSE(list.take(50));
}

}  // namespace
}  // namespace kiln
