#include "compiler_core/tune/race.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

using Kind = RaceStep::Kind;

std::vector<double> runs(int count, double us) {
  return std::vector<double>(static_cast<size_t>(count), us);
}

Measurement steady(int count, double us) {
  return {runs(count, us)};
}

// Samples with the median `us` and quartiles some 6 % from it.
Measurement scattered(int count, double us) {
  Measurement measurement;
  for (int i = 0; i < count; ++i) measurement.samples_us.push_back(us * (1 + 0.06 * (i % 3 - 1)));
  return measurement;
}

const MeasurementPolicy kPolicy;  // 3 runs, 2x; 20 runs, 1.15x; 4 finalists; 40 rounds; 1 %

TEST(NextStep, ScreensThenRacesThenIsAFinalist) {
  EXPECT_EQ(next_step(kPolicy, 0, {}), (RaceStep{Kind::kRunMore, 3}));
  EXPECT_EQ(next_step(kPolicy, 0, runs(1, 5)), (RaceStep{Kind::kRunMore, 2}));
  EXPECT_EQ(next_step(kPolicy, 0, runs(3, 5)), (RaceStep{Kind::kRunMore, 17}));
  EXPECT_EQ(next_step(kPolicy, 0, runs(20, 5)), (RaceStep{Kind::kFinalist, 0}));
}

TEST(NextStep, DropsBeyondTwiceTheIncumbentAfterScreening) {
  EXPECT_EQ(next_step(kPolicy, 10, runs(3, 20.1)).kind, Kind::kDrop);
  EXPECT_EQ(next_step(kPolicy, 10, runs(3, 20)).kind, Kind::kRunMore);
  EXPECT_EQ(next_step(kPolicy, 10, runs(2, 1000)).kind, Kind::kRunMore) << "not screened yet";
}

TEST(NextStep, DropsBeyondTheNarrowerLimitAfterTheRace) {
  EXPECT_EQ(next_step(kPolicy, 10, runs(20, 11.6)).kind, Kind::kDrop);
  EXPECT_EQ(next_step(kPolicy, 10, runs(20, 11.4)).kind, Kind::kFinalist);
}

TEST(NextStep, DropsHalfWayWhatNeverCameNear) {
  EXPECT_EQ(next_step(kPolicy, 10, runs(3, 12)), (RaceStep{Kind::kRunMore, 7}));
  EXPECT_EQ(next_step(kPolicy, 10, runs(10, 12)).kind, Kind::kDrop);
  std::vector<double> once_near = runs(10, 12);
  once_near[4] = 11;
  EXPECT_EQ(next_step(kPolicy, 10, once_near), (RaceStep{Kind::kRunMore, 10}));
}

TEST(NextStep, AnIncumbentThatImprovedDropsInTheMiddleOfARace) {
  EXPECT_EQ(next_step(kPolicy, 10, runs(8, 12)).kind, Kind::kRunMore);
  EXPECT_EQ(next_step(kPolicy, 5, runs(8, 12)).kind, Kind::kDrop);
}

TEST(NextStep, JudgesByTheMedian) {
  EXPECT_EQ(next_step(kPolicy, 10, std::vector<double>{10, 900, 11}).kind, Kind::kRunMore);
}

TEST(PickFinalists, TakesTheFastestFirst) {
  EXPECT_EQ(pick_finalists(kPolicy, std::vector<double>{10.4, 10.1, 10.3, 10, 10.2}),
            (std::vector<size_t>{3, 1, 4, 2}));
}

TEST(PickFinalists, LeavesOutTheSlowAndTheUnmeasured) {
  EXPECT_EQ(pick_finalists(kPolicy, std::vector<double>{0, 12, 10, 11}),
            (std::vector<size_t>{2, 3}));
  EXPECT_TRUE(pick_finalists(kPolicy, std::vector<double>{0, 0}).empty());
  EXPECT_TRUE(pick_finalists(kPolicy, {}).empty());
}

TEST(PickFinalists, EqualOnesKeepTheirOrder) {
  EXPECT_EQ(pick_finalists(kPolicy, std::vector<double>{5, 5, 5}), (std::vector<size_t>{0, 1, 2}));
}

TEST(FinalsDecided, AfterTheLastRound) {
  const auto finals = [](int rounds) {
    return std::vector<Measurement>{scattered(40, 5), scattered(rounds, 5.1)};
  };
  EXPECT_TRUE(finals_decided(kPolicy, finals(40)));
  EXPECT_FALSE(finals_decided(kPolicy, finals(39)));
}

TEST(FinalsDecided, EarlyWhenTheLeaderIsClear) {
  EXPECT_TRUE(finals_decided(kPolicy, std::vector<Measurement>{steady(10, 5), steady(10, 6)}));
  EXPECT_FALSE(finals_decided(kPolicy, std::vector<Measurement>{steady(9, 5), steady(9, 6)}));
  EXPECT_FALSE(finals_decided(
      kPolicy, std::vector<Measurement>{steady(10, 5), steady(10, 6), steady(10, 5)}));
}

TEST(FinalsDecided, HalfWayATieIsLeftAsItIs) {
  const auto finals = [](int rounds, double rival_us) {
    return finals_decided(kPolicy, std::vector<Measurement>{scattered(rounds, 5), steady(rounds, 6),
                                                            scattered(rounds, rival_us)});
  };
  EXPECT_FALSE(finals(19, 5.04));
  EXPECT_TRUE(finals(20, 5.04));
  EXPECT_FALSE(finals(20, 5.06)) << "no tie, and not told apart yet";
}

TEST(FinalsDecided, AloneThereIsNothingToDecide) {
  EXPECT_TRUE(finals_decided(kPolicy, {}));
  EXPECT_TRUE(finals_decided(kPolicy, std::vector<Measurement>{{}}));
}

TEST(Rank, ByMedian) {
  EXPECT_EQ(rank(kPolicy, std::vector<Measurement>{steady(3, 6), steady(3, 4), steady(3, 5)},
                 kNoIncumbent),
            (std::vector<size_t>{1, 2, 0}));
}

TEST(Rank, ATieKeepsTheIncumbent) {
  const std::vector<Measurement> close = {steady(3, 100), steady(3, 102), steady(3, 100.9)};
  EXPECT_EQ(rank(kPolicy, close, 2), (std::vector<size_t>{2, 0, 1}));
  EXPECT_EQ(rank(kPolicy, close, 1), (std::vector<size_t>{0, 2, 1})) << "2 % is no tie";
}

TEST(Rank, LeavesOutWhoNeverRan) {
  EXPECT_EQ(rank(kPolicy, std::vector<Measurement>{{}, steady(1, 5)}, 0), (std::vector<size_t>{1}));
  EXPECT_TRUE(rank(kPolicy, {}, kNoIncumbent).empty());
}

}  // namespace
}  // namespace kiln
