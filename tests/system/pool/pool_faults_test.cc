// A few rounds of each trouble of a pool; bin/pool_soak has them at random, for as long as one likes.
// docs/faults.md says which.
#include <gtest/gtest.h>

#include "tests/system/pool/pool_crowd.h"
#include "tests/system/pool/pool_drill.h"

namespace kiln::testing {
namespace {

using Kind = PoolTrouble::Kind;

class PoolFaults : public ::testing::Test {
 protected:
  void begin(bool has_standby = false, bool has_filter = false) {
    if (has_filter)
      if (const Status network = PacketFilter::enter_own_network(); !network)
        GTEST_SKIP() << network.error().message;
    auto pool =
        Pool::start({.root = dir_.path(), .has_standby = has_standby, .has_filter = has_filter});
    if (!pool && pool.error().code == Code::kUnsupported) GTEST_SKIP() << pool.error().message;
    ASSERT_TRUE(pool) << pool.error().message;
    pool_ = *std::move(pool);
    drill_ = std::make_unique<PoolDrill>(*pool_, 7);
    expect_good({});
  }
  void expect_good(const PoolTrouble& trouble) {
    for (const std::string& complaint : drill_->round(trouble))
      ADD_FAILURE() << describe(trouble) << ": " << complaint;
  }

  // Until its point was reached: whoever led when the round began may have lost its term before.
  void expect_good_when_struck(const PoolTrouble& trouble) {
    const int struck = drill_->tally().struck;
    for (int tries = 0; tries < 4 && drill_->tally().struck == struck; ++tries)
      expect_good(trouble);
    EXPECT_GT(drill_->tally().struck, struck) << describe(trouble) << ": not reached";
  }

  const TempDir dir_ = TempDir::create("kiln-pool").value();
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<PoolDrill> drill_;
};

TEST_F(PoolFaults, TheLeaderDiesAroundAStatement) {
  begin();
  if (pool_ == nullptr) return;
  expect_good_when_struck({.kind = Kind::kKillAtStatement, .point = {"COMMIT", true}});
  expect_good_when_struck(
      {.kind = Kind::kKillAtStatement, .point = {"INSERT INTO programs", false}});
}

TEST_F(PoolFaults, TheLeaderDiesAsItPutsABinaryAndItsSuccessorAsItTakesTheTerm) {
  begin();
  if (pool_ == nullptr) return;
  expect_good_when_struck({.kind = Kind::kKillAtPut, .point = {"", true}});
  expect_good_when_struck({.kind = Kind::kKillAtTake, .point = {"", true}});
}

TEST_F(PoolFaults, TheLeaderStandsStillForLongerThanItsTerm) {
  begin();
  if (pool_ == nullptr) return;
  expect_good({.kind = Kind::kStop, .after_ms = 300, .for_ms = 12'000});
  EXPECT_GE(drill_->tally().takeovers, 1);
}

TEST_F(PoolFaults, WiresAreCut) {
  begin();
  if (pool_ == nullptr) return;
  expect_good({.kind = Kind::kCutPostgres,
               .after_ms = 300,
               .for_ms = 7'000,
               .wire = TcpProxy::Mode::kDeafToClient});
  expect_good({.kind = Kind::kCutClients, .for_ms = 2'000, .wire = TcpProxy::Mode::kRefuse});
  expect_good({.kind = Kind::kCutS3, .for_ms = 2'000, .wire = TcpProxy::Mode::kDeafToServer});
}

TEST_F(PoolFaults, PacketsAreLostBothWaysAndOneWay) {
  begin(false, true);
  if (pool_ == nullptr) return;
  expect_good({.kind = Kind::kLosePostgres,
               .after_ms = 300,
               .for_ms = 7'000,
               .lost = PacketFilter::Cut::kBoth});
  expect_good({.kind = Kind::kLosePostgres,
               .after_ms = 300,
               .for_ms = 7'000,
               .lost = PacketFilter::Cut::kFromServer});
  expect_good({.kind = Kind::kLoseClients, .for_ms = 3'000, .lost = PacketFilter::Cut::kToServer});
  expect_good({.kind = Kind::kLoseS3, .for_ms = 3'000, .lost = PacketFilter::Cut::kBoth});
}

TEST_F(PoolFaults, TheSynchronousStandbyTakesOver) {
  begin(true);
  if (pool_ == nullptr) return;
  expect_good({.kind = Kind::kFailOver, .after_ms = 300});
  expect_good({.kind = Kind::kFailOver, .after_ms = 1'000});
}

TEST_F(PoolFaults, S3AnswersBadly) {
  begin();
  if (pool_ == nullptr) return;
  for (const auto fault : {SmallS3::Fault::kFails, SmallS3::Fault::kHalf, SmallS3::Fault::kFalse404,
                           SmallS3::Fault::kDenies})
    expect_good({.kind = Kind::kS3, .for_ms = 1'500, .s3 = fault});
}

// `pool_soak --crowd 1000` is the same for a thousand.
TEST_F(PoolFaults, ManyWhoAskForOneNewProgramCostOneSearch) {
  begin();
  if (pool_ == nullptr) return;
  constexpr int kClients = 60;
  const CrowdTally tally = ask_at_once(*pool_, kClients, 1'000);
  EXPECT_EQ(tally.answered, kClients) << tally.error;
  EXPECT_EQ(tally.tuned, 1);
  EXPECT_EQ(tally.joined + tally.hits, kClients - 1);
  EXPECT_GT(tally.builds.candidates, 0);
  // All of a batch's once more, where one is slow.
  const int64_t searched = tally.builds.candidates * (tally.hedged > 0 ? 2 : 1);
  EXPECT_LE(tally.builds.builds, searched + tally.confirmed);
}

}  // namespace
}  // namespace kiln::testing
