#include "coordinator/status/task_log.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

class TaskLogTest : public ::testing::Test {
 protected:
  void ask(int64_t now_ms, const ClientId& client, uint64_t number, const std::string& user = "") {
    CompileRequest request;
    request.request = number;
    request.target = {Backend::kCpu, "x86-64-v3", "", 0, {}};
    log_.asked(now_ms, key_, key_, client, user, request);
  }
  void answer(int64_t now_ms, const ClientId& client, uint64_t number,
              Result<CacheOutcome> outcome) {
    log_.answered(now_ms, client, CompileReply{number, std::move(outcome), "{}"});
  }
  // Three kernels, one of them cached, the others with four candidates each.
  PlanFinished plan() const {
    PlanFinished plan{key_, Program{}, std::vector<PlannedKernel>(3)};
    for (PlannedKernel& kernel : plan.kernels) kernel.schedules.resize(4);
    plan.kernels[1].cached = ProgramKernel{};
    return plan;
  }
  StoreProgram stored(size_t kernels) const {
    Program program;
    program.key = key_;
    program.kernels.resize(kernels);
    for (ProgramKernel& kernel : program.kernels) kernel.report.best_us = 12.5;
    return {std::move(program), key_};
  }
  bool said(const std::string& part) const {
    return lines_.size() == 1 && lines_[0].find(part) != std::string::npos;
  }

  const Digest key_ = Digest::of("program");
  std::vector<std::string> lines_;
  TaskLog log_{[this](const LogLine& line) { lines_.push_back(line.logfmt()); }};
};

TEST_F(TaskLogTest, WritesOneLineWhenTheLastWaiterIsAnswered) {
  ask(1'000, "a", 1);
  ask(1'100, "b", 1);
  ask(1'150, "b", 2);
  log_.waiting_for_graph(1'180, "a", 1);
  log_.planning(1'200, key_);
  log_.planned(1'250, plan());
  log_.storing(3'250, stored(3));
  answer(3'260, "a", 1, CacheOutcome::kTuned);
  answer(3'260, "b", 1, CacheOutcome::kJoined);
  EXPECT_TRUE(lines_.empty());
  answer(3'260, "b", 2, CacheOutcome::kJoined);
  ASSERT_EQ(lines_.size(), 1u);
  for (const char* part :
       {"key=", "target=cpu:x86-64-v3", "outcome=tuned", "requests=3", "clients=2", "kernels=3",
        "cached=1", "candidates=8", "winners_us=37.500", "looking_up_s=0.180", "wait_graph_s=0.020",
        "planning_s=0.050", "tuning_s=2.000", "storing_s=0.010", "total_s=2.260"}) {
    EXPECT_TRUE(said(part)) << part << " in " << lines_[0];
  }
}

TEST_F(TaskLogTest, NamesThoseWhoWaitedAndTheProgramAsPinTakesIt) {
  ask(1'000, "a", 1, "replica");
  ask(1'000, "b", 1, "ci");
  ask(1'000, "c", 1, "ci");
  ask(1'000, "d", 1);
  for (const char* client : {"a", "b", "c", "d"}) answer(1'100, client, 1, CacheOutcome::kTuned);
  EXPECT_TRUE(said("users=ci,local,replica ")) << lines_.at(0);
  EXPECT_TRUE(said("program_key=" + key_.hex())) << lines_.at(0);
}

TEST_F(TaskLogTest, OfManyUsersSomeAreNamedAndTheRestCounted) {
  for (int i = 0; i < 100; ++i) ask(1'000, std::to_string(i), 1, "u" + std::to_string(100 + i));
  for (int i = 0; i < 100; ++i) answer(1'100, std::to_string(i), 1, CacheOutcome::kTuned);
  EXPECT_TRUE(said("users=u100,u101,u102,u103,u104,u105,u106,u107,+92 ")) << lines_.at(0);
}

TEST_F(TaskLogTest, ADetachedTaskHasItsLineWhenItEnds) {
  ask(1'000, "a", 1);
  log_.planning(1'000, key_);
  log_.planned(1'050, plan());
  answer(1'060, "a", 1, CacheOutcome::kQueued);
  EXPECT_TRUE(lines_.empty());
  log_.detached_ended(3'050, {key_, {}, {}});
  EXPECT_TRUE(said("outcome=tuned"));
  EXPECT_TRUE(said("tuning_s=2.000"));
}

TEST_F(TaskLogTest, ADetachedTaskOfAnEarlierIncarnationHasItsEnd) {
  EndDetached ended;
  ended.key = key_;
  ended.task.target = {Backend::kCpu, "x86-64-v3", "", 0, {}};
  ended.outcome = fail(Code::kUnsupported, "no kernel for it");
  log_.detached_ended(1'000, ended);
  EXPECT_TRUE(said("target=cpu:x86-64-v3"));
  EXPECT_TRUE(said("outcome=unsupported"));
}

TEST_F(TaskLogTest, SaysWhyATaskFailed) {
  ask(1'000, "a", 1);
  answer(1'010, "a", 1, fail(Code::kUnsupported, "no kernel for \"scan\""));
  EXPECT_TRUE(said("outcome=unsupported"));
  EXPECT_TRUE(said("reason=\"no kernel for \\\"scan\\\"\""));
}

TEST_F(TaskLogTest, LookUpsAloneAreSilent) {
  ask(1'000, "a", 1);
  answer(1'001, "a", 1, CacheOutcome::kHit);
  ask(1'000, "a", 2);
  answer(1'001, "a", 2, fail(Code::kNotFound, "not in the cache"));
  EXPECT_TRUE(lines_.empty());
}

TEST_F(TaskLogTest, ARepeatedRequestIsOne) {
  ask(1'000, "a", 1);
  ask(1'100, "a", 1);
  answer(1'200, "a", 1, CacheOutcome::kTuned);
  EXPECT_TRUE(said("requests=1"));
}

TEST_F(TaskLogTest, ClientsThatLeaveEndTheirWaiting) {
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

// A first graph that was not what its digest said: the task goes back and asks somebody else.
TEST_F(TaskLogTest, TimesOfAStageThatIsEnteredTwiceAddUp) {
  ask(1'000, "a", 1);
  ask(1'000, "b", 1);
  log_.waiting_for_graph(1'000, "a", 1);
  log_.waiting_for_graph(1'100, "b", 1);  // asked in turn: still the same wait
  log_.planning(1'200, key_);
  answer(1'300, "a", 1, fail(Code::kInvalidArgument, "another graph"));
  log_.waiting_for_graph(1'300, "b", 1);
  log_.planning(1'350, key_);
  log_.planned(1'360, plan());
  log_.storing(1'400, stored(1));
  answer(1'400, "b", 1, CacheOutcome::kJoined);
  EXPECT_TRUE(said("wait_graph_s=0.250")) << lines_.at(0);
  EXPECT_TRUE(said("planning_s=0.110")) << lines_.at(0);
}

TEST_F(TaskLogTest, CountsDurationsOfTheStagesThatWereReached) {
  const auto count = [&](TaskStage stage) {
    return log_.times().stages[static_cast<size_t>(stage)].count();
  };
  ask(1'000, "a", 1);
  log_.planning(1'200, key_);  // its graph came with it
  log_.planned(1'250, plan());
  answer(2'250, "a", 1, fail(Code::kUnavailable, "no worker"));
  EXPECT_EQ(count(TaskStage::kLookingUp), 1);
  EXPECT_EQ(count(TaskStage::kWaitGraph), 0);
  EXPECT_EQ(count(TaskStage::kTuning), 1);
  EXPECT_EQ(count(TaskStage::kStoring), 0);
  EXPECT_DOUBLE_EQ(log_.times().total.sum_s(), 1.25);
  EXPECT_EQ(log_.times().outcomes.at("unavailable"), 1);
  ask(3'000, "a", 2);
  answer(3'000, "a", 2, CacheOutcome::kHit);  // a look-up alone is no task
  EXPECT_EQ(log_.times().total.count(), 1);
}

}  // namespace
}  // namespace kiln
