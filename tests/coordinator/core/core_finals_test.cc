// Finals that do not go as they should: who is to blame, and who wins.
#include <map>

#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

class CoreFinals : public ::testing::Test {
 protected:
  // Screened as `us` says; the first `finalists` of them are in the final.
  void screen(int finalists, const std::vector<double>& us) {
    CoreOptions options;
    options.policy.finalists = finalists;
    bench_.emplace(options);
    bench_->report("w");
    bench_->start({planned_kernel("k", static_cast<int>(us.size()))});
    const Job job = next();
    std::vector<CandidateResult> results;
    for (const CandidateJob& c : job.candidates)
      results.push_back(ok_result(job, c.index, us[static_cast<size_t>(c.index)]));
    bench_->report("w", {}, std::move(results));
  }
  // Its verdict of `bad`; all others take `us` each.
  void finish(const Job& job, int bad, Verdict verdict, double us = 10) {
    std::vector<CandidateResult> results;
    for (const CandidateJob& c : job.candidates)
      results.push_back(c.index == bad ? bad_result(job, c.index, verdict)
                                       : ok_result(job, c.index, us, 40));
    bench_->report("w", {}, std::move(results));
  }
  Job next() { return bench_->job_of("w"); }
  std::string winner() {
    bench_->store_all();
    const auto program = program_from_json(bench_->one<Answer>().reply.program_json);
    return program.has_value() ? program->kernels[0].schedule : "none";
  }
  Stats stats() { return bench_->core().stats(bench_->now_ms); }

  std::optional<CoreBench> bench_;
};

TEST_F(CoreFinals, AFinalistThatKillsItsRunnerIsSetAside) {
  screen(2, {10, 10.5});
  int finals = 0;
  for (Job job = next(); job.lease != 0; job = next()) {
    ASSERT_EQ(job.kind, Job::Kind::kFinal);
    ASSERT_LT(++finals, 10);
    finish(job, 0, Verdict::kRunnerDied);
  }
  EXPECT_EQ(finals, 2) << "each costs two runners: of all together, and its own";
  EXPECT_EQ(stats().set_aside, 1);
  EXPECT_EQ(winner(), schedule_of(1).to_string());
}

// It needs no compiler, which the device waits for between the others.
TEST_F(CoreFinals, AreNextWhereOtherKernelsWait) {
  bench_.emplace(CoreOptions{});
  bench_->report("w");
  bench_->start({planned_kernel("k0", 2), planned_kernel("k1", 2), planned_kernel("k2", 2)});
  const Job screened = next();
  bench_->report("w", {}, {ok_result(screened, 0, 10), ok_result(screened, 1, 10.1)});
  const Job job = next();
  EXPECT_EQ(job.kind, Job::Kind::kFinal);
  EXPECT_EQ(job.workload_text, screened.workload_text);
}

TEST_F(CoreFinals, LeaveOutWhomTheLeadersDeviceFoundFarBehind) {
  screen(4, {10, 10.2, 10.6, 10.4});
  const Job job = next();
  EXPECT_EQ(job.kind, Job::Kind::kFinal);
  EXPECT_EQ(indices(job), (std::vector<int>{0, 1, 3}));
}

TEST_F(CoreFinals, AreNoneWhereTheLeadersDeviceFoundAllOthersFarBehind) {
  screen(4, {11, 10, 10.6});
  EXPECT_EQ(next().lease, 0u);
  EXPECT_EQ(winner(), schedule_of(1).to_string());
}

// Two devices' times of one kernel differ by more than that.
TEST_F(CoreFinals, LeaveOutNobodyWhomAnotherDeviceTimed) {
  CoreOptions options;
  options.policy.finalists = 4;
  bench_.emplace(options);
  bench_->report("w");
  bench_->report("v");
  bench_->start({planned_kernel("k", 4)});
  std::map<int, std::string> timed_by;
  Job final_job;
  for (int round = 0; round < 8 && final_job.lease == 0; ++round)
    for (SendOrders& orders : bench_->take<SendOrders>())
      for (const Job& job : orders.orders.jobs) {
        if (job.kind == Job::Kind::kFinal) {
          final_job = job;
          continue;
        }
        std::vector<CandidateResult> results;
        for (const CandidateJob& c : job.candidates) {
          timed_by[c.index] = orders.worker;
          results.push_back(ok_result(job, c.index, c.index == 0 ? 10 : 11));
        }
        bench_->report(orders.worker, {}, std::move(results));
      }
  ASSERT_EQ(timed_by.size(), 4u);
  std::vector<int> expected = {0};
  for (const auto& [index, worker] : timed_by)
    if (worker != timed_by[0]) expected.push_back(index);
  ASSERT_GT(expected.size(), 1u) << "both had some";
  EXPECT_EQ(indices(final_job), expected);
}

// The machine was half as fast during the final.
TEST_F(CoreFinals, TheFirstGuessIsReportedAsIfItHadBeenThere) {
  screen(2, {40, 10, 10.5});
  const Job job = next();
  EXPECT_EQ(indices(job), (std::vector<int>{1, 2}));
  bench_->report("w", {}, {ok_result(job, 1, 20, 40), ok_result(job, 2, 21, 40)});
  bench_->store_all();
  const auto program = program_from_json(bench_->one<Answer>().reply.program_json);
  ASSERT_TRUE(program.has_value());
  EXPECT_EQ(program->kernels[0].report.best_us, 20);
  EXPECT_EQ(program->kernels[0].report.first_us, 80);
}

TEST_F(CoreFinals, SoIsOneThatNeverEnds) {
  screen(2, {10, 10.5});
  for (Job job = next(); job.lease != 0; job = next()) finish(job, 0, Verdict::kTimedOut);
  EXPECT_EQ(stats().set_aside, 1);
  EXPECT_EQ(winner(), schedule_of(1).to_string());
}

TEST_F(CoreFinals, WithoutItTheOthersAreRacedAgainAsAWhole) {
  screen(3, {10, 10.1, 10.2});
  finish(next(), 0, Verdict::kRunnerDied);
  finish(next(), 0, Verdict::kRunnerDied);
  const Job job = next();
  ASSERT_EQ(job.kind, Job::Kind::kFinal);
  EXPECT_EQ(indices(job), (std::vector<int>{1, 2}));
  bench_->report("w", {}, {ok_result(job, 1, 11, 40), ok_result(job, 2, 9, 40)});
  EXPECT_EQ(winner(), schedule_of(2).to_string());
}

TEST_F(CoreFinals, WhereAllFinalistsKillTheNextBestHaveTheirTurn) {
  screen(2, {10, 10.1, 10.2, 10.3});
  for (int i = 0; i < 2; ++i) {
    const Job job = next();
    ASSERT_EQ(indices(job), (std::vector<int>{0, 1}));
    bench_->report(
        "w", {},
        {bad_result(job, 0, Verdict::kRunnerDied), bad_result(job, 1, Verdict::kRunnerDied)});
  }
  const Job rebuild = next();
  ASSERT_EQ(rebuild.kind, Job::Kind::kCompile);
  EXPECT_EQ(indices(rebuild), (std::vector<int>{2, 3}));
  bench_->report("w", {}, {ok_result(rebuild, 2, 0), ok_result(rebuild, 3, 0)});
  finish(next(), -1, Verdict::kOk);
  EXPECT_EQ(winner(), schedule_of(2).to_string());
}

TEST_F(CoreFinals, OneWhoseFinalNeverEndedDoesNotWinOverOneWhoseDid) {
  screen(2, {10, 10.5});
  for (Job job = next(); job.lease != 0; job = next()) finish(job, 0, Verdict::kDeviceLost);
  EXPECT_EQ(stats().set_aside, 0);
  EXPECT_EQ(winner(), schedule_of(1).to_string());
}

TEST_F(CoreFinals, TheLastOneLeftMustEndAFinalIfItOnlyFailedSoFar) {
  screen(2, {10, 10.5});
  Job job = next();
  bench_->report(
      "w", {},
      {bad_result(job, 0, Verdict::kRunnerDied), bad_result(job, 1, Verdict::kWrongResult)});
  job = next();
  ASSERT_EQ(job.kind, Job::Kind::kFinal);
  EXPECT_EQ(indices(job), (std::vector<int>{0}));
  finish(job, -1, Verdict::kOk);
  EXPECT_EQ(winner(), schedule_of(0).to_string());
}

TEST_F(CoreFinals, DeathsInTheScreeningCountThoughItWentWellInTheEnd) {
  CoreOptions options;
  options.policy.finalists = 2;
  bench_.emplace(options);
  bench_->report("w");
  bench_->start({planned_kernel("k", 2)});
  Job job = next();
  bench_->report("w", {}, {bad_result(job, 0, Verdict::kRunnerDied), ok_result(job, 1, 10.5)});
  job = next();
  ASSERT_EQ(indices(job), (std::vector<int>{0}));
  bench_->report("w", {}, {ok_result(job, 0, 10)});
  job = next();
  ASSERT_EQ(job.kind, Job::Kind::kFinal);
  finish(job, 0, Verdict::kRunnerDied);
  EXPECT_EQ(stats().set_aside, 1);
  EXPECT_EQ(winner(), schedule_of(1).to_string());
}

TEST_F(CoreFinals, AFinalSaysNothingOfThePaceOfCandidates) {
  CoreOptions options;
  options.policy.finalists = 2;
  options.lease_work_ms = 8'000;
  bench_.emplace(options);
  bench_->report("w");
  bench_->start({planned_kernel("k", 4)});
  Job job = next();
  ASSERT_EQ(job.candidates.size(), 4u);
  bench_->now_ms += 4'000;
  std::vector<CandidateResult> results;
  for (int i = 0; i < 4; ++i) results.push_back(ok_result(job, i, 10 + 0.1 * i));
  bench_->report("w", {}, std::move(results));
  job = next();
  ASSERT_EQ(job.kind, Job::Kind::kFinal);
  for (int i = 0; i < 5; ++i) bench_->tick(1'000), bench_->report("w", {{job.lease, job.epoch, i}});
  finish(job, -1, Verdict::kOk);
  bench_->store_all();
  bench_->take<SendOrders>();
  bench_->start({planned_kernel("l", 40)}, Mode::kMaxAutotune, "other", "c", 2);
  EXPECT_EQ(next().candidates.size(), 8u) << "a second each";
}

}  // namespace
}  // namespace kiln
