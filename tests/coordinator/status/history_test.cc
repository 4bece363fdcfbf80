#include "coordinator/status/history.h"

#include <gtest/gtest.h>

#include "coordinator/status/miss_log.h"

namespace kiln {
namespace {

Stats with_worker(const std::string& state, int leases) {
  Stats stats;
  WorkerStats worker;
  worker.name = "gpu7";
  worker.target.backend = Backend::kCuda;
  worker.state = state;
  worker.leases = leases;
  stats.workers = {worker};
  return stats;
}

TEST(History, KeepsSecondsAndMinutesAndNoMore) {
  History history;
  Stats stats;
  constexpr int64_t kDays = 3;
  for (int64_t s = 0; s < kDays * 86'400; s += 10) {
    stats.hits = s;
    history.add(1'000 * s, stats);
  }
  EXPECT_EQ(history.seconds().size(), History::kSeconds);
  EXPECT_EQ(history.minutes().size(), History::kMinutes);
  EXPECT_EQ(history.minutes().back().at_ms - history.minutes().front().at_ms, 60'000 * 1'439);
}

TEST(History, CountsTheTimeThatDevicesWork) {
  History history;
  for (int s = 0; s <= 10; ++s) history.add(1'000 * s, with_worker("serving", s < 5 ? 1 : 0));
  EXPECT_DOUBLE_EQ(history.busy_gpu_s(), 4) << "nobody knows of the time before the first sample";
  EXPECT_DOUBLE_EQ(history.busy_cpu_s(), 0);
  history.add(3'600'000, with_worker("serving", 1));
  EXPECT_LE(history.busy_gpu_s(), 10) << "an hour without samples is none of work";
}

TEST(History, DrawsAStripAWorkerAndForgetsThoseLongGone) {
  History history;
  int64_t at_ms = 1'000'000;
  const auto pass = [&](const Stats& stats, int64_t spans) {
    for (int64_t s = 0; s < spans * 15; ++s) history.add(at_ms += 1'000, stats);
  };
  history.add(at_ms, with_worker("serving", 0));
  pass(with_worker("serving", 0), 2);
  pass(with_worker("serving", 1), 2);
  pass(with_worker("quarantined", 0), 1);
  pass(Stats{}, 1);
  EXPECT_EQ(history.strips().at("gpu7"), "iibbq-");
  pass(Stats{}, static_cast<int64_t>(History::kSpans));
  EXPECT_TRUE(history.strips().empty());
}

TEST(MissLog, AddsUpWhatIsAskedForAgainAndIsBounded) {
  MissLog log;
  const auto miss = [](int program, const char* user) {
    Miss made{.program = Digest::of(std::to_string(program)), .graph = {}, .target = {}};
    made.users = {user};
    return made;
  };
  log.add(miss(1, "ci"));
  log.add(miss(2, "ci"));
  log.add(miss(1, "replica"));
  ASSERT_EQ(log.latest().size(), 2u);
  EXPECT_EQ(log.latest().front().program, Digest::of(std::string("1")));
  EXPECT_EQ(log.latest().front().times, 2);
  EXPECT_EQ(log.latest().front().users, (std::set<std::string>{"ci", "replica"}));
  for (int i = 0; i < 5'000; ++i) log.add(miss(i, std::to_string(i).c_str()));
  EXPECT_EQ(log.latest().size(), MissLog::kMost);
  EXPECT_EQ(log.find(Digest::of(std::string("7"))), nullptr);
  EXPECT_NE(log.find(Digest::of(std::string("4999"))), nullptr);
}

}  // namespace
}  // namespace kiln
