#include "coordinator/core/requests/user_loads.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

TEST(UserLoads, CountWhatEachUserHasAtWork) {
  const Digest a = Digest::of("a"), b = Digest::of("b");
  UserLoads loads;
  loads.add_task(a, "ann");
  loads.add_task(b, "ann");
  loads.add_candidates(a, 30);
  loads.add_candidates(a, 10);
  EXPECT_EQ(loads.tasks_of("ann"), 2);
  EXPECT_EQ(loads.candidates_of("ann"), 40);
  EXPECT_EQ(loads.tasks_of("bob"), 0);
  loads.add_task(a, "bob");  // another graph of the same program
  EXPECT_EQ(loads.tasks_of("ann"), 1);
  EXPECT_EQ(loads.candidates_of("ann"), 0);
  EXPECT_EQ(loads.tasks_of("bob"), 1);
  loads.remove(a);
  loads.remove(a);
  EXPECT_EQ(loads.tasks_of("bob"), 0);
}

TEST(UserLoads, WithoutANameThereIsNothingToCount) {
  UserLoads loads;
  loads.add_task(Digest::of("a"), "");
  loads.add_candidates(Digest::of("a"), 5);
  EXPECT_EQ(loads.tasks_of(""), 0);
  EXPECT_EQ(loads.candidates_of(""), 0);
}

}  // namespace
}  // namespace kiln
