#include "coordinator/core/scheduling/work_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace kiln {
namespace {

Target target_of(const char* isa) {
  Target target;
  target.isa = isa;
  return target;
}

const Target kV3 = target_of("x86-64-v3"), kV4 = target_of("x86-64-v4");

Tenants only(const TenantId& tenant, Priority priority = Priority::kInteractive) {
  return {{tenant, priority}};
}

std::vector<std::string> serve(WorkQueue& queue, const Target& device, int times,
                               const std::vector<std::string>& names) {
  std::vector<std::string> served;
  for (int i = 0; i < times; ++i)
    queue.serve_next(device, [&](const Digest& kernel) {
      for (const std::string& name : names)
        if (Digest::of(name) == kernel) served.push_back(name);
      return 10.0;
    });
  return served;
}

TEST(WorkQueue, OwnersTakeTurnsAndSoDoTheirKernels) {
  WorkQueue queue(8);
  for (const char* kernel : {"a1", "a2", "a3"}) queue.add(kV3, only("a"), Digest::of(kernel));
  queue.add(kV3, only("b"), Digest::of("b1"));
  EXPECT_EQ(serve(queue, kV3, 6, {"a1", "a2", "a3", "b1"}),
            (std::vector<std::string>{"a1", "b1", "a2", "b1", "a3", "b1"}));
}

TEST(WorkQueue, OneThatIsNextGoesBeforeItsTenantsOthersAndNobodyElses) {
  WorkQueue queue(8);
  for (const char* kernel : {"a1", "a2"}) queue.add(kV3, only("a"), Digest::of(kernel));
  for (const char* kernel : {"b1", "b2"}) queue.add(kV3, only("b"), Digest::of(kernel));
  queue.add(kV3, only("b"), Digest::of("b3"), WorkQueue::Turn::kNext);
  EXPECT_EQ(serve(queue, kV3, 6, {"a1", "a2", "b1", "b2", "b3"}),
            (std::vector<std::string>{"a1", "b3", "a2", "b1", "a1", "b2"}));
}

TEST(WorkQueue, CountsWhatWaits) {
  WorkQueue queue(8);
  queue.add(kV3, only("a"), Digest::of("one"));
  queue.add(kV4, only("b"), Digest::of("two"));
  queue.set_waiting(Digest::of("one"), 5);
  queue.set_waiting(Digest::of("two"), 7);
  queue.set_waiting(Digest::of("none such"), 100);
  EXPECT_EQ(queue.waiting(), 12);
  queue.set_waiting(Digest::of("one"), 2);
  queue.add(kV3, only("c"), Digest::of("one"));
  EXPECT_EQ(queue.waiting(), 9);
  queue.remove(Digest::of("two"));
  EXPECT_EQ(queue.waiting(), 2);
  queue.set_waiting(Digest::of("one"), 0);
  EXPECT_EQ(queue.waiting(), 0);
  EXPECT_TRUE(queue.empty());
}

TEST(WorkQueue, ListsTheKernelsOfATargetEachOnce) {
  WorkQueue queue(8);
  queue.add(kV3, {{"a", Priority::kInteractive}, {"b", Priority::kWarmUp}}, Digest::of("both"));
  queue.add(kV3, only("b"), Digest::of("one"));
  queue.add(kV4, only("a"), Digest::of("other"));
  const std::vector<Digest> kernels = queue.kernels_for(kV3);
  EXPECT_EQ(kernels.size(), 2u);
  EXPECT_EQ(std::set(kernels.begin(), kernels.end()),
            (std::set{Digest::of("both"), Digest::of("one")}));
  EXPECT_EQ(queue.targets().size(), 2u);
}

TEST(WorkQueue, DeviceIsOfferedOnlyWhatItRuns) {
  WorkQueue queue(8);
  queue.add(kV4, only("a"), Digest::of("new"));
  EXPECT_FALSE(queue.serve_next(kV3, [](const Digest&) { return 1.0; }));
  EXPECT_TRUE(queue.serve_next(kV4, [](const Digest&) { return 1.0; }));
}

TEST(WorkQueue, TaskThatHasNothingForThisWorkerIsPassedOver) {
  WorkQueue queue(8);
  queue.add(kV3, only("a"), Digest::of("no"));
  queue.add(kV3, only("b"), Digest::of("yes"));
  int offered = 0;
  EXPECT_TRUE(queue.serve_next(kV3, [&](const Digest& kernel) {
    ++offered;
    return kernel == Digest::of("yes") ? 1.0 : 0.0;
  }));
  EXPECT_EQ(offered, 2);
}

TEST(WorkQueue, AddingTwiceIsAddingOnce) {
  WorkQueue queue(8);
  queue.add(kV3, only("a"), Digest::of("k"));
  queue.add(kV3, only("b"), Digest::of("k"));
  queue.remove(Digest::of("k"));
  queue.remove(Digest::of("k"));
  EXPECT_TRUE(queue.empty());
}

TEST(WorkQueue, OwnerThatComesBackWaitsForThoseWhoWaitAlready) {
  WorkQueue queue(8);
  queue.add(kV3, only("a"), Digest::of("a1"));
  queue.add(kV3, only("b"), Digest::of("b1"));
  EXPECT_EQ(serve(queue, kV3, 1, {"a1", "b1"}), (std::vector<std::string>{"a1"}));
  queue.remove(Digest::of("a1"));
  queue.add(kV3, only("a"), Digest::of("a2"));
  EXPECT_EQ(serve(queue, kV3, 2, {"a2", "b1"}), (std::vector<std::string>{"b1", "a2"}));
}

TEST(WorkQueue, TenantsGetEqualWorkAndNotEqualTurns) {
  WorkQueue queue(8);
  queue.add(kV3, only("slow"), Digest::of("slow"));
  queue.add(kV3, only("quick"), Digest::of("quick"));
  std::map<std::string, double> work;
  for (int i = 0; i < 100; ++i)
    queue.serve_next(kV3, [&](const Digest& kernel) {
      const bool slow = kernel == Digest::of("slow");
      work[slow ? "slow" : "quick"] += slow ? 90 : 10;
      return slow ? 90.0 : 10.0;
    });
  EXPECT_NEAR(work["slow"], work["quick"], 90);
}

TEST(WorkQueue, GoingAwayAndComingBackGainsNothing) {
  WorkQueue queue(8);
  queue.add(kV3, only("loyal"), Digest::of("loyal"));
  int loyal = 0, fickle = 0;
  for (int i = 0; i < 50; ++i) {
    const std::string name = "fickle" + std::to_string(i);
    queue.add(kV3, only("fickle"), Digest::of(name));
    queue.serve_next(kV3, [&](const Digest& kernel) {
      ++(kernel == Digest::of("loyal") ? loyal : fickle);
      return 10.0;
    });
    queue.remove(Digest::of(name));
  }
  EXPECT_NEAR(loyal, fickle, 1);
}

TEST(WorkQueue, NewcomerStartsWhereTheOthersAre) {
  WorkQueue queue(8);
  queue.add(kV3, only("old"), Digest::of("old"));
  serve(queue, kV3, 100, {"old"});
  queue.add(kV3, only("new"), Digest::of("new"));
  const auto served = serve(queue, kV3, 10, {"old", "new"});
  EXPECT_EQ(std::count(served.begin(), served.end(), "old"), 5);
}

TEST(WorkQueue, InteractiveGoesFirstAndWarmUpStillGoesOn) {
  WorkQueue queue(4);
  queue.add(kV3, only("warmer", Priority::kWarmUp), Digest::of("warm"));
  queue.add(kV3, only("user"), Digest::of("now"));
  EXPECT_EQ(serve(queue, kV3, 8, {"warm", "now"}),
            (std::vector<std::string>{"now", "now", "now", "warm", "now", "now", "now", "warm"}));
  queue.remove(Digest::of("now"));
  EXPECT_EQ(serve(queue, kV3, 2, {"warm"}), (std::vector<std::string>{"warm", "warm"}));
}

TEST(WorkQueue, WhatWarmUpDidNotGetIsNotClaimedOfInteractiveWork) {
  WorkQueue queue(10);
  queue.add(kV3, only("user"), Digest::of("now"));
  queue.add(kV3, only("warmer", Priority::kWarmUp), Digest::of("warm"));
  serve(queue, kV3, 100, {"now", "warm"});  // the warmer is far behind
  queue.add(kV3, only("warmer"), Digest::of("warm"));
  const auto served = serve(queue, kV3, 10, {"now", "warm"});
  EXPECT_EQ(std::count(served.begin(), served.end(), "now"), 5);
}

TEST(WorkQueue, WhatOneDeviceDidNotGiveIsNotClaimedOfAnother) {
  WorkQueue queue(8);
  queue.add(kV3, only("slow"), Digest::of("old"));
  queue.add(kV4, only("quick"), Digest::of("new"));
  serve(queue, kV3, 1, {});
  serve(queue, kV4, 1, {});
  for (int i = 0; i < 100; ++i)  // the v3 device is slow, and "quick" has v4 work alone
    queue.serve_next(kV4,
                     [](const Digest& kernel) { return kernel == Digest::of("new") ? 10 : 0; });
  queue.add(kV4, only("slow"), Digest::of("newer"));
  const auto served = serve(queue, kV4, 10, {"new", "newer"});
  EXPECT_GE(std::count(served.begin(), served.end(), "new"), 4);
}

TEST(WorkQueue, SharedTaskHasItsTurnWithEachOfItsTenants) {
  WorkQueue queue(8);
  queue.add(kV3, only("a"), Digest::of("a1"));
  queue.add(kV3, {{"a", Priority::kInteractive}, {"b", Priority::kInteractive}}, Digest::of("ab"));
  EXPECT_EQ(serve(queue, kV3, 4, {"a1", "ab"}), (std::vector<std::string>{"a1", "ab", "ab", "ab"}))
      << "b's turn, then a's second";
  queue.add(kV3, only("b"), Digest::of("ab"));  // a no longer waits for it
  EXPECT_EQ(serve(queue, kV3, 2, {"a1", "ab"}), (std::vector<std::string>{"a1", "ab"}));
}

TEST(WorkQueue, WarmUpBecomesInteractiveWhenSomebodyWaits) {
  WorkQueue queue(100);
  queue.add(kV3, only("warmer", Priority::kWarmUp), Digest::of("k"));
  queue.add(kV3, only("user"), Digest::of("other"));
  queue.add(kV3, {{"warmer", Priority::kWarmUp}, {"late", Priority::kInteractive}},
            Digest::of("k"));
  EXPECT_EQ(serve(queue, kV3, 2, {"k", "other"}), (std::vector<std::string>{"other", "k"}));
}

TEST(WorkQueue, EveryStepIsCheapForAThousandTenants) {
  WorkQueue queue(8);
  for (int tenant = 0; tenant < 1'000; ++tenant)
    for (int i = 0; i < 10; ++i) {
      const std::string name = std::to_string(tenant);
      queue.add(kV3, only(name), Digest::of(name + "/" + std::to_string(i)));
    }
  int offered = 0;
  std::set<Digest> served;
  for (int i = 0; i < 10'000; ++i)
    queue.serve_next(kV3, [&](const Digest& kernel) {
      ++offered;
      served.insert(kernel);
      return 1.0;
    });
  EXPECT_EQ(offered, 10'000) << "one offer a turn";
  EXPECT_EQ(served.size(), 10'000u) << "each kernel once before any a second time";
}

}  // namespace
}  // namespace kiln
