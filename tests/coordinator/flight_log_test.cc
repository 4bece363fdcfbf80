#include "coordinator/flight_log.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

class FlightLogTest : public ::testing::Test {
 protected:
  void ask(int64_t now_ms, const ClientId& client, uint64_t number) {
    CompileRequest request;
    request.request = number;
    request.target = {Backend::kCpu, "x86-64-v3", "", 0, {}};
    log_.asked(now_ms, key_, client, request);
  }
  void answer(int64_t now_ms, const ClientId& client, uint64_t number,
              Result<CacheOutcome> outcome) {
    log_.answered(now_ms, client, CompileReply{number, std::move(outcome), "{}"});
  }
  bool said(const std::string& part) const {
    return lines_.size() == 1 && lines_[0].find(part) != std::string::npos;
  }

  const Digest key_ = Digest::of("program");
  std::vector<std::string> lines_;
  FlightLog log_{[this](std::string_view line) { lines_.emplace_back(line); }};
};

TEST_F(FlightLogTest, WritesOneLineWhenTheLastWaiterIsAnswered) {
  ask(1'000, "a", 1);
  ask(1'100, "b", 1);
  ask(1'150, "b", 2);
  log_.planning(1'200, key_);
  PlanFinished plan{key_, Program{}, std::vector<PlannedKernel>(3)};
  plan.kernels[1].cached = ProgramKernel{};
  log_.planned(1'250, plan);
  log_.storing(3'250, key_);
  answer(3'260, "a", 1, CacheOutcome::kTuned);
  answer(3'260, "b", 1, CacheOutcome::kJoined);
  EXPECT_TRUE(lines_.empty());
  answer(3'260, "b", 2, CacheOutcome::kJoined);
  ASSERT_EQ(lines_.size(), 1u);
  for (const char* part :
       {"key=", "target=cpu:x86-64-v3", "outcome=tuned", "requests=3", "clients=2", "kernels=3",
        "cached=1", "plan_s=0.050", "tune_s=2.000", "store_s=0.010", "total_s=2.260"}) {
    EXPECT_TRUE(said(part)) << part << " in " << lines_[0];
  }
}

TEST_F(FlightLogTest, SaysWhyAFlightFailed) {
  ask(1'000, "a", 1);
  answer(1'010, "a", 1, fail(Code::kUnsupported, "no kernel for \"scan\""));
  EXPECT_TRUE(said("outcome=unsupported"));
  EXPECT_TRUE(said("reason=\"no kernel for \\\"scan\\\"\""));
}

TEST_F(FlightLogTest, LookUpsAloneAreSilent) {
  ask(1'000, "a", 1);
  answer(1'001, "a", 1, CacheOutcome::kHit);
  ask(1'000, "a", 2);
  answer(1'001, "a", 2, fail(Code::kNotFound, "not in the cache"));
  EXPECT_TRUE(lines_.empty());
}

TEST_F(FlightLogTest, ARepeatedRequestIsOne) {
  ask(1'000, "a", 1);
  ask(1'100, "a", 1);
  answer(1'200, "a", 1, CacheOutcome::kTuned);
  EXPECT_TRUE(said("requests=1"));
}

TEST_F(FlightLogTest, ClientsThatLeaveEndTheirWaiting) {
  ask(1'000, "a", 1);
  ask(1'000, "a", 2);
  ask(1'000, "b", 7);
  log_.gone(1'100, "a");
  EXPECT_TRUE(lines_.empty());
  log_.cancelled(1'200, "b", 7);
  EXPECT_TRUE(said("outcome=abandoned"));
  log_.gone(1'300, "b");
  EXPECT_EQ(lines_.size(), 1u);
}

}  // namespace
}  // namespace kiln
