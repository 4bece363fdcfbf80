// Many seeds of the cluster, and proof that the checker would notice if something were wrong:
// docs/simulation.md names each mutated mutant with a seed that shows it.
// To watch one:  bin/simulation --seed N [--mutant NAME] --trace
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>

#include "tests/simulation/mutants.h"

namespace kiln::simulation {
namespace {

constexpr int kParts = 8;  // so that ctest runs them side by side
constexpr int kPartsWithBuilders = 2;
constexpr uint64_t kSeedsAPart = 250;

class Simulation : public ::testing::TestWithParam<int> {};

TEST_P(Simulation, InvariantsHoldUnderFaultsForEverySeed) {
  int64_t incarnations = 0, answers = 0, accepted = 0, fenced = 0, hedged = 0, set_aside = 0;
  const bool has_builders = GetParam() >= kParts;
  const uint64_t first = has_builders
                             ? kFirstSeedWithBuilders + uint64_t(GetParam() - kParts) * kSeedsAPart
                             : 1 + static_cast<uint64_t>(GetParam()) * kSeedsAPart;
  for (uint64_t seed = first; seed < first + kSeedsAPart; ++seed) {
    const Outcome outcome = Cluster(seed).run();
    ASSERT_FALSE(outcome.violation.has_value())
        << *outcome.violation << "\nreplay: bin/simulation --seed " << seed << " --trace";
    incarnations += outcome.incarnations;
    answers += outcome.answers;
    accepted += outcome.accepted;
    fenced += outcome.fenced;
    hedged += outcome.stats.hedged;
    set_aside += outcome.stats.set_aside;
  }
  // The faults were there, and so was the work.
  EXPECT_GT(incarnations, 2 * static_cast<int64_t>(kSeedsAPart));
  EXPECT_GT(answers, 5 * static_cast<int64_t>(kSeedsAPart));
  EXPECT_GT(accepted, 10 * static_cast<int64_t>(kSeedsAPart));
  EXPECT_GT(fenced, 0);
  EXPECT_GT(hedged, 0);
  EXPECT_GT(set_aside, 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Simulation, ::testing::Range(0, kParts + kPartsWithBuilders));

// Found by longer runs, beyond the seeds above.
TEST(SimulationOf, SeedsThatOnceFailed) {
  for (const uint64_t seed : {
           11317u,  // a queued program was tried again too late
           12640u,  // one partition lacked a worker, the other was bad: failed as if for good
           11158u, 11342u,  // the checker's own: finals given up pass over who never ended one
           78001u,  // the checker's own: a failed partition that another program tuned since
       }) {
    const Outcome outcome = Cluster(seed).run();
    EXPECT_FALSE(outcome.violation.has_value()) << seed << ": " << *outcome.violation;
  }
}

TEST(SimulationOf, OneSeedIsOneHistory) {
  const Outcome first = Cluster(7).run();
  const Outcome second = Cluster(7).run();
  EXPECT_EQ(first.steps, second.steps);
  EXPECT_EQ(first.answers, second.answers);
  EXPECT_EQ(first.accepted, second.accepted);
}

// Terms and an object store cost the core nothing: a few seeds see what the fence and the names hold.
TEST(SimulationOf, APoolOfCoordinatorsOnOneStore) {
  int64_t incarnations = 0;
  for (uint64_t seed = 1; seed <= kSeedsAPart; ++seed) {
    const Outcome outcome = Cluster(seed, {}, false, Cast::kPool).run();
    ASSERT_FALSE(outcome.violation.has_value())
        << *outcome.violation << "\nreplay: bin/simulation --pool --seed " << seed << " --trace";
    incarnations += outcome.incarnations;
  }
  EXPECT_GT(incarnations, 4 * static_cast<int64_t>(kSeedsAPart));
}

struct Row {
  uint64_t seed = 0;
  std::string invariant;
};

// Rows of the table: | Name | where | invariant | seed | what it is |
std::map<std::string, Row> documented_mutants() {
  static const std::regex kRow(R"(^\| (\w+) \| (?:core|world|pool) \| (\d) \| (\d+) \| .*)");
  std::map<std::string, Row> rows;
  std::ifstream in(std::string(KILN_SOURCE_DIR) + "/docs/simulation.md");
  std::smatch match;
  for (std::string line; std::getline(in, line);)
    if (std::regex_match(line, match, kRow))
      rows[match[1]] = {std::stoull(match[3]), "invariant " + match[2].str()};
  return rows;
}

TEST(Mutants, AreAllInTheTableAndNothingElseIs) {
  auto rows = documented_mutants();
  for (const NamedMutant& mutant : all_mutants())
    EXPECT_EQ(rows.erase(mutant.name), 1u) << mutant.name << " is not in docs/simulation.md";
  for (const auto& [name, row] : rows) ADD_FAILURE() << name << " is no mutant of mutants.h";
}

TEST(Mutants, EachIsFoundByItsSeedAndTheSeedIsGoodWithoutIt) {
  const auto rows = documented_mutants();
  for (const NamedMutant& named : all_mutants()) {
    const auto row = rows.find(named.name);
    if (row == rows.end()) continue;
    const auto outcome = Cluster(row->second.seed, named.mutant, false, named.cast).run();
    ASSERT_TRUE(outcome.violation.has_value())
        << named.name << " is not found by seed " << row->second.seed
        << "; others: bin/simulation --seeds 300 --mutant all";
    EXPECT_EQ(outcome.violation->substr(0, 11), row->second.invariant) << named.name;
    EXPECT_FALSE(Cluster(row->second.seed, {}, false, named.cast).run().violation.has_value())
        << row->second.seed;
  }
}

}  // namespace
}  // namespace kiln::simulation
