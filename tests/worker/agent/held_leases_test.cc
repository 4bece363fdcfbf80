#include "worker/agent/held_leases.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

Job job_of(uint64_t lease, int candidates, uint64_t epoch = 1) {
  Job made;
  made.lease = lease;
  made.epoch = epoch;
  for (int i = 0; i < candidates; ++i) made.candidates.push_back({i, {}, "", ""});
  return made;
}

CandidateResult result_of(uint64_t lease, int index, uint64_t epoch = 1, size_t bytes = 10) {
  CandidateResult made;
  made.lease = lease;
  made.epoch = epoch;
  made.index = index;
  made.binary.assign(bytes, 'x');
  return made;
}

class HeldLeasesTest : public ::testing::Test {
 protected:
  HeldLeases state_{{"w", {}, "g++", 2, {}, {}, false}};
};

TEST_F(HeldLeasesTest, ALeaseIsStartedOnceAndReportedWithItsProgress) {
  EXPECT_EQ(state_.apply({{job_of(7, 2)}, {7}, {}}).start.size(), 1u);
  EXPECT_TRUE(state_.apply({{job_of(7, 2)}, {7}, {}}).start.empty());  // not heard of it yet
  state_.step(7);
  state_.step(8);  // nobody's
  const WorkerReport report = state_.report();
  ASSERT_EQ(report.leases.size(), 1u);
  EXPECT_EQ(report.leases[0].lease, 7u);
  EXPECT_EQ(report.leases[0].done, 1);
  EXPECT_EQ(report.slots, 2);
  EXPECT_EQ(report.worker, "w");
}

TEST_F(HeldLeasesTest, ResultsAreInEveryReportUntilTheyAreAcknowledged) {
  state_.apply({{job_of(7, 2)}, {7}, {}});
  EXPECT_TRUE(state_.finish(result_of(7, 0)));
  EXPECT_TRUE(state_.finish(result_of(7, 1)));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(state_.report().results.size(), 2u);
  EXPECT_TRUE(state_.report().leases.empty());
  state_.apply({{}, {}, {{7, 0}}});
  ASSERT_EQ(state_.report().results.size(), 1u);
  EXPECT_EQ(state_.report().results[0].index, 1);
  state_.apply({{}, {}, {{7, 0}, {7, 1}, {9, 0}}});
  EXPECT_FALSE(state_.has_results());
}

TEST_F(HeldLeasesTest, AFinishedLeaseIsNotDoneAgainWhenTheReportWasLost) {
  state_.apply({{job_of(7, 1)}, {7}, {}});
  state_.finish(result_of(7, 0));
  EXPECT_TRUE(state_.apply({{job_of(7, 1)}, {7}, {}}).start.empty());
}

TEST_F(HeldLeasesTest, ARevokedLeaseIsDroppedAndItsLaterResultsForgotten) {
  state_.apply({{job_of(7, 2), job_of(8, 1)}, {7, 8}, {}});
  EXPECT_TRUE(state_.finish(result_of(7, 0)));
  const auto changes = state_.apply({{}, {8}, {}});
  EXPECT_EQ(changes.drop, std::vector<uint64_t>{7});
  EXPECT_FALSE(state_.finish(result_of(7, 1)));
  EXPECT_EQ(state_.report().results.size(), 1u);  // what was finished in time is still handed over
  ASSERT_EQ(state_.report().leases.size(), 1u);
  EXPECT_EQ(state_.report().leases[0].lease, 8u);
}

TEST_F(HeldLeasesTest, AResultOfAnotherEpochIsNotOurs) {
  state_.apply({{job_of(7, 1, 3)}, {7}, {}});
  EXPECT_FALSE(state_.finish(result_of(7, 0, 2)));
  EXPECT_TRUE(state_.finish(result_of(7, 0, 3)));
}

TEST_F(HeldLeasesTest, LargeResultsTakeSeveralReportsAndTheLeaseStaysUntilTheLast) {
  constexpr int kCandidates = 4;
  state_.apply({{job_of(7, kCandidates)}, {7}, {}});
  for (int i = 0; i < kCandidates; ++i)
    state_.finish(result_of(7, i, 1, kMaxReportBytes / 2 - 1000));
  int delivered = 0;
  while (state_.has_results()) {
    const WorkerReport report = state_.report();
    ASSERT_FALSE(report.results.empty());
    size_t bytes = 0;
    std::vector<ResultAck> acks;
    for (const CandidateResult& sent : report.results) {
      bytes += sent.binary.size();
      acks.push_back({sent.lease, sent.index});
    }
    EXPECT_LE(bytes, kMaxReportBytes);
    delivered += static_cast<int>(acks.size());
    EXPECT_EQ(report.leases.empty(), delivered == kCandidates);
    state_.apply({{}, {7}, acks});
  }
  EXPECT_EQ(delivered, kCandidates);
}

TEST_F(HeldLeasesTest, AsksForNothingNewWhileTooMuchIsUnacknowledged) {
  state_.apply({{job_of(7, 40)}, {7}, {}});
  for (int i = 0; i < 40; ++i) state_.finish(result_of(7, i, 1, 8 << 20));
  EXPECT_EQ(state_.report().slots, 0);
}

TEST_F(HeldLeasesTest, DrainingGivesLeasesBackAndKeepsResults) {
  state_.apply({{job_of(7, 2)}, {7}, {}});
  state_.finish(result_of(7, 0));
  state_.drain();
  EXPECT_TRUE(state_.report().draining);
  EXPECT_TRUE(state_.report().leases.empty());
  EXPECT_EQ(state_.report().results.size(), 1u);
  EXPECT_TRUE(state_.apply({{job_of(9, 1)}, {9}, {}}).start.empty());
}

}  // namespace
}  // namespace kiln
