#include "coordinator/core/scheduling/fair_queue.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

TenantId next_of(const FairQueue& turns) {
  return std::get<TenantId>(*turns.order().begin());
}

TEST(FairQueue, WhoWasServedLeastIsNext) {
  FairQueue turns;
  turns.join("a");
  turns.join("b");
  EXPECT_EQ(next_of(turns), "a") << "who came first";
  turns.charge("a", 10);
  turns.charge("b", 30);
  EXPECT_EQ(next_of(turns), "a");
  turns.charge("a", 10);
  EXPECT_EQ(next_of(turns), "a");
  turns.charge("a", 10);
  EXPECT_EQ(next_of(turns), "b") << "equal clocks: who waits longer";
}

TEST(FairQueue, WaitsUntilItLeftAsOftenAsItJoined) {
  FairQueue turns;
  turns.join("a");
  turns.join("a");
  turns.leave("a");
  EXPECT_EQ(turns.order().size(), 1u);
  turns.leave("a");
  EXPECT_TRUE(turns.order().empty());
}

TEST(FairQueue, WhoRefusedDoesNotClaimItLater) {
  FairQueue turns;
  turns.join("refuses");
  turns.join("works");
  for (int i = 0; i < 10; ++i) turns.charge("works", 10);  // though its clock is ahead
  turns.charge("refuses", 10);
  turns.charge("works", 10);
  EXPECT_EQ(next_of(turns), "refuses");
  turns.charge("refuses", 20);
  EXPECT_EQ(next_of(turns), "works");
}

}  // namespace
}  // namespace kiln
