#include "coordinator/core/scheduling/lease_table.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

Lease lease_of(const WorkerId& worker, const char* kernel) {
  Lease lease;
  lease.worker = worker;
  lease.kernel = Digest::of(kernel);
  lease.candidates = {1, 2};
  return lease;
}

TEST(LeaseTable, IdsAndEpochsAreNeverUsedTwice) {
  LeaseTable leases(100);
  const uint64_t first = leases.open(0, lease_of("w", "k")).id;
  leases.close(first);
  EXPECT_EQ(first, 100u);
  EXPECT_EQ(leases.open(0, lease_of("w", "k")).id, 101u);
  const uint64_t epoch = leases.new_epoch();
  EXPECT_GT(leases.new_epoch(), epoch);
}

TEST(LeaseTable, FindsByWorkerKernelAndProgress) {
  LeaseTable leases(1);
  leases.open(10, lease_of("w", "k"));
  leases.open(20, lease_of("v", "k"));
  leases.open(30, lease_of("w", "l"));
  EXPECT_EQ(leases.of_worker("w"), (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(leases.of_kernel(Digest::of("k")), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(leases.count(Digest::of("k")), 2);
  EXPECT_EQ(leases.without_progress_since(20), (std::vector<uint64_t>{1, 2}));
  leases.progressed(40, *leases.find(1));
  EXPECT_EQ(leases.without_progress_since(20), (std::vector<uint64_t>{2}));
  leases.close(2);
  EXPECT_EQ(leases.without_progress_since(40), (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(leases.of_kernel(Digest::of("k")), (std::vector<uint64_t>{1}));
  EXPECT_EQ(leases.find(3)->outstanding, (std::vector<int>{1, 2}));
  EXPECT_EQ(leases.find(9), nullptr);
}

TEST(LeaseTable, CountsWhatAWorkerHolds) {
  LeaseTable leases(1);
  leases.open(0, lease_of("w", "k"));
  leases.open(0, lease_of("w", "l"));
  EXPECT_EQ(leases.count("w"), 2);
  leases.close(1);
  leases.close(1);
  EXPECT_EQ(leases.count("w"), 1);
  leases.close(2);
  EXPECT_EQ(leases.count("w"), 0);
}

}  // namespace
}  // namespace kiln
