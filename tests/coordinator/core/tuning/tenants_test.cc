#include "coordinator/core/tuning/tenants.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

Tenants warm_ups(size_t count) {
  Tenants tenants;
  for (size_t i = 0; i < count; ++i)
    add_tenant(tenants, "user " + std::to_string(i), Priority::kWarmUp);
  return tenants;
}

TEST(TenantsTest, TheMoreUrgentWishOfATenantStands) {
  Tenants tenants = warm_ups(1);
  add_tenant(tenants, "user 0", Priority::kInteractive);
  add_tenant(tenants, "user 0", Priority::kWarmUp);
  EXPECT_EQ(tenants, (Tenants{{"user 0", Priority::kInteractive}}));
}

TEST(TenantsTest, WhoWaitsTakesThePlaceOfAWarmUp) {
  Tenants tenants = warm_ups(kMaxTenants);
  add_tenant(tenants, "who waits", Priority::kInteractive);
  EXPECT_EQ(tenants.size(), kMaxTenants);
  ASSERT_TRUE(tenants.contains("who waits"));
  EXPECT_EQ(tenants.at("who waits"), Priority::kInteractive);
}

TEST(TenantsTest, BeyondItsBoundNobodyElseComesIn) {
  Tenants tenants = warm_ups(kMaxTenants);
  add_tenant(tenants, "late", Priority::kWarmUp);
  EXPECT_EQ(tenants, warm_ups(kMaxTenants));
  for (size_t i = 0; i < kMaxTenants; ++i)
    add_tenant(tenants, "waits " + std::to_string(i), Priority::kInteractive);
  add_tenant(tenants, "waits too", Priority::kInteractive);
  EXPECT_EQ(tenants.size(), kMaxTenants);
  EXPECT_FALSE(tenants.contains("waits too"));
}

}  // namespace
}  // namespace kiln
