#include "coordinator/core/artifacts/single_flight.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace kiln {
namespace {

using Kind = SingleFlight::Verdict::Kind;
using Asker = SingleFlight::Asker;
using Verdicts = SingleFlight::Verdicts;

constexpr int64_t kLease = 1000, kWait = 500;

Asker asker(const std::string& connection, uint64_t request = 1) {
  return {connection, request, "user of " + connection};
}

TEST(SingleFlight, TheFirstMakesItAndOthersWaitAndLookAgain) {
  SingleFlight flights;
  EXPECT_EQ(flights.missed(0, "x", asker("a"), kWait, kLease),
            (Verdicts{{asker("a"), Kind::kMakeIt, 1}}));
  EXPECT_TRUE(flights.missed(1, "x", asker("b"), kWait, kLease).empty());
  EXPECT_TRUE(flights.missed(2, "x", asker("c"), kWait, 0).empty());
  EXPECT_EQ(flights.missed(2, "y", asker("c"), kWait, 0), (Verdicts{{asker("c"), Kind::kMiss}}));
  EXPECT_EQ(flights.waits(), 2u);
  EXPECT_EQ(flights.stored("x"),
            (Verdicts{{asker("b"), Kind::kLookAgain}, {asker("c"), Kind::kLookAgain}}));
  EXPECT_EQ(flights.leases() + flights.waits(), 0u);
  EXPECT_TRUE(flights.stored("x").empty());
}

TEST(SingleFlight, WhoDoesNotWaitLearnsThatSomebodyMakesIt) {
  SingleFlight flights;
  flights.missed(0, "x", asker("a"), 0, kLease);
  EXPECT_EQ(flights.missed(0, "x", asker("b"), 0, kLease), (Verdicts{{asker("b"), Kind::kHeld}}));
}

TEST(SingleFlight, TheLeaseOfAConnectionThatEndsGoesToTheFirstWhoWantsIt) {
  SingleFlight flights;
  flights.missed(0, "x", asker("a"), 0, kLease);
  flights.missed(0, "x", asker("reader"), kWait, 0);
  flights.missed(0, "x", asker("b"), kWait, kLease);
  flights.missed(0, "x", asker("c"), kWait, kLease);
  EXPECT_EQ(flights.gone(100, "a"), (Verdicts{{asker("b"), Kind::kMakeIt, 2}}));
  EXPECT_EQ(flights.waits(), 2u);
  EXPECT_TRUE(flights.gone(100, "c").empty());
  EXPECT_EQ(flights.gone(100, "b"), (Verdicts{{asker("reader"), Kind::kMiss}}));
  EXPECT_EQ(flights.leases() + flights.waits(), 0u);
}

TEST(SingleFlight, ALeaseEndsWithItsTime) {
  SingleFlight flights;
  flights.missed(0, "x", asker("a"), 0, kLease);
  flights.missed(900, "x", asker("b"), kWait, kLease);
  EXPECT_TRUE(flights.expire(999).empty());
  EXPECT_EQ(flights.expire(1000), (Verdicts{{asker("b"), Kind::kMakeIt, 2}}));
  EXPECT_TRUE(flights.release(1001, 1, asker("a").user).empty()) << "it is no lease any more";
  EXPECT_EQ(flights.leases(), 1u);
}

TEST(SingleFlight, AWaitEndsWithItsTime) {
  SingleFlight flights;
  flights.missed(0, "x", asker("a"), 0, kLease);
  flights.missed(0, "x", asker("b"), kWait, kLease);
  EXPECT_EQ(flights.expire(kWait), (Verdicts{{asker("b"), Kind::kHeld}}));
  EXPECT_EQ(flights.waits(), 0u);
}

TEST(SingleFlight, OnlyItsHoldersUserReleasesALease) {
  SingleFlight flights;
  flights.missed(0, "x", asker("a"), 0, kLease);
  flights.missed(0, "x", asker("b"), kWait, kLease);
  EXPECT_TRUE(flights.release(0, 1, "somebody else").empty());
  EXPECT_EQ(flights.release(0, 1, asker("a").user), (Verdicts{{asker("b"), Kind::kMakeIt, 2}}));
  EXPECT_TRUE(flights.release(0, 2, asker("b").user).empty());
  EXPECT_EQ(flights.leases(), 0u);
}

TEST(SingleFlight, AHolderThatAsksAgainKeepsItsLease) {
  SingleFlight flights;
  flights.missed(0, "x", asker("a"), 0, kLease);
  EXPECT_EQ(flights.missed(800, "x", asker("a", 2), kWait, kLease),
            (Verdicts{{asker("a", 2), Kind::kMakeIt, 1}}));
  EXPECT_TRUE(flights.expire(1500).empty());
}

TEST(SingleFlight, LeasesAndWaitsAreBounded) {
  SingleFlight flights;
  for (size_t i = 0; i < SingleFlight::kMaxLeasesEach; ++i)
    EXPECT_EQ(flights.missed(0, std::to_string(i), asker("a"), 0, kLease).at(0).kind,
              Kind::kMakeIt);
  EXPECT_EQ(flights.missed(0, "more", asker("a"), 0, kLease).at(0).kind, Kind::kMiss);
  EXPECT_EQ(flights.missed(0, "more", asker("b"), 0, kLease).at(0).kind, Kind::kMakeIt);
  for (size_t i = 0; i < SingleFlight::kMaxWaits; ++i)
    EXPECT_TRUE(flights.missed(0, "more", asker("c", i), kWait, kLease).empty());
  EXPECT_EQ(flights.missed(0, "more", asker("d"), kWait, kLease).at(0).kind, Kind::kHeld);
}

// Whatever comes in whatever order: one holder at most, one verdict for each that asks.
TEST(SingleFlight, HoldsItsInvariantsOverRandomHistories) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const auto any = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    SingleFlight flights;
    std::set<uint64_t> open;                          // requests without a verdict
    std::map<std::string, std::set<uint64_t>> asked;  // by connection
    std::set<uint64_t> leases;
    uint64_t request = 0;
    int64_t now_ms = 0;
    const auto hear = [&](const Verdicts& verdicts) {
      for (const auto& verdict : verdicts) {
        EXPECT_EQ(open.erase(verdict.asker.request), 1u) << "seed " << seed;
        if (verdict.kind == Kind::kMakeIt) leases.insert(verdict.lease);
      }
    };
    for (int i = 0; i < 400; ++i) {
      now_ms += any(50);
      const std::string artifact = std::to_string(any(3)), connection = std::to_string(any(6));
      switch (any(5)) {
        case 0:
        case 1:
          open.insert(++request);
          asked[connection].insert(request);
          hear(flights.missed(now_ms, artifact, {connection, request, "u"}, any(300), any(400)));
          break;
        case 2:
          hear(flights.stored(artifact));
          break;
        case 3:
          for (const uint64_t left : asked[connection]) open.erase(left);
          asked[connection].clear();
          hear(flights.gone(now_ms, connection));
          break;
        default:
          if (!leases.empty()) hear(flights.release(now_ms, *leases.begin(), "u"));
          hear(flights.expire(now_ms));
      }
      ASSERT_LE(flights.leases(), 3u);
      ASSERT_EQ(flights.waits(), open.size()) << "seed " << seed;
    }
    hear(flights.expire(now_ms + 10'000));
    hear(flights.expire(now_ms + 20'000));
    EXPECT_EQ(flights.leases() + flights.waits(), 0u);
    EXPECT_TRUE(open.empty());
  }
}

}  // namespace
}  // namespace kiln
