// Many seeds of the cluster, and proof that the checker would notice if the core were wrong.
// To watch one:  bin/simulation --seed N --trace
#include <gtest/gtest.h>

#include <ostream>

#include "tests/simulation/cluster.h"

namespace kiln::simulation {
namespace {

constexpr uint64_t kSeeds = 1000;

TEST(Simulation, InvariantsHoldUnderFaultsForEverySeed) {
  int64_t lives = 0, answers = 0, accepted = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Outcome outcome = Cluster(seed, Planted::kNone, false).run();
    ASSERT_FALSE(outcome.violation.has_value())
        << *outcome.violation << "\nreplay: bin/simulation --seed " << seed << " --trace";
    lives += outcome.lives;
    answers += outcome.answers;
    accepted += outcome.accepted;
  }
  // The faults were there, and so was the work.
  EXPECT_GT(lives, 2 * static_cast<int64_t>(kSeeds));
  EXPECT_GT(answers, 5 * static_cast<int64_t>(kSeeds));
  EXPECT_GT(accepted, 10 * static_cast<int64_t>(kSeeds));
}

TEST(Simulation, OneSeedIsOneHistory) {
  const Outcome first = Cluster(7, Planted::kNone, false).run();
  const Outcome second = Cluster(7, Planted::kNone, false).run();
  EXPECT_EQ(first.steps, second.steps);
  EXPECT_EQ(first.answers, second.answers);
  EXPECT_EQ(first.accepted, second.accepted);
}

// The violation that the first of `seeds` shows; empty when none does.
std::string first_violation(Planted planted, uint64_t seeds) {
  for (uint64_t seed = 1; seed <= seeds; ++seed)
    if (auto outcome = Cluster(seed, planted, false).run(); outcome.violation)
      return *outcome.violation;
  return "";
}

struct Mistake {
  const char* name;
  Planted planted;
  const char* found_as;
};
// ctest and gtest print parameters: by name, so that the list of tests is the same every time.
void PrintTo(const Mistake& mistake, std::ostream* out) {
  *out << mistake.name;
}

class PlantedMistake : public testing::TestWithParam<Mistake> {};

TEST_P(PlantedMistake, IsFound) {
  EXPECT_EQ(first_violation(GetParam().planted, 100).substr(0, 11), GetParam().found_as);
}

INSTANTIATE_TEST_SUITE_P(
    Simulation, PlantedMistake,
    testing::Values(Mistake{"AcceptStale", Planted::kAcceptStale, "invariant 1"},
                    Mistake{"AnswerTwice", Planted::kAnswerTwice, "invariant 2"},
                    Mistake{"AnswerUnstored", Planted::kAnswerUnstored, "invariant 5"},
                    Mistake{"AckUnstored", Planted::kAckUnstored, "invariant 5"},
                    Mistake{"ForgetRecords", Planted::kForgetRecords, "invariant 3"},
                    Mistake{"ReuseLeaseIds", Planted::kReuseLeaseIds, "invariant 1"},
                    Mistake{"LoseDeaths", Planted::kLoseDeaths, "invariant 2"},
                    Mistake{"QueueUnstored", Planted::kQueueUnstored, "invariant 6"},
                    Mistake{"ForgetFlights", Planted::kForgetFlights, "invariant 6"}),
    [](const auto& mistake) { return mistake.param.name; });

}  // namespace
}  // namespace kiln::simulation
