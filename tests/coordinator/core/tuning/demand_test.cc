#include "coordinator/core/tuning/demand.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

Demand warm_ups(size_t count) {
  Demand demand;
  for (size_t i = 0; i < count; ++i)
    add_demand(demand, "user " + std::to_string(i), Priority::kWarmUp);
  return demand;
}

TEST(DemandOf, TheMoreUrgentWishOfAShareStands) {
  Demand demand = warm_ups(1);
  add_demand(demand, "user 0", Priority::kInteractive);
  add_demand(demand, "user 0", Priority::kWarmUp);
  EXPECT_EQ(demand, (Demand{{"user 0", Priority::kInteractive}}));
}

TEST(DemandOf, WhoWaitsTakesThePlaceOfAWarmUp) {
  Demand demand = warm_ups(kMaxSharers);
  add_demand(demand, "who waits", Priority::kInteractive);
  EXPECT_EQ(demand.size(), kMaxSharers);
  ASSERT_TRUE(demand.contains("who waits"));
  EXPECT_EQ(demand.at("who waits"), Priority::kInteractive);
}

TEST(DemandOf, BeyondItsBoundNobodyElseComesIn) {
  Demand demand = warm_ups(kMaxSharers);
  add_demand(demand, "late", Priority::kWarmUp);
  EXPECT_EQ(demand, warm_ups(kMaxSharers));
  for (size_t i = 0; i < kMaxSharers; ++i)
    add_demand(demand, "waits " + std::to_string(i), Priority::kInteractive);
  add_demand(demand, "waits too", Priority::kInteractive);
  EXPECT_EQ(demand.size(), kMaxSharers);
  EXPECT_FALSE(demand.contains("waits too"));
}

}  // namespace
}  // namespace kiln
