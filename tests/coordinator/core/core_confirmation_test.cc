// Winners are confirmed by a worker with another key: workers that lie about results, about bytes
// and about times, alone against honest ones.
#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

CoreOptions confirming(int confirm) {
  CoreOptions options;
  options.policy.finalists = 1;
  options.confirm = confirm;
  return options;
}

CandidateResult with_binary(CandidateResult result, std::string binary) {
  result.binary = std::move(binary);
  return result;
}

class CoreConfirmation : public ::testing::Test {
 protected:
  // One kernel, its first candidate built by `worker` in default mode.
  Job built_by(CoreBench& bench, const WorkerId& worker, const std::string& owner,
               int schedules = 1) {
    bench.report_of_key(worker, owner);
    bench.start({planned_kernel("k", schedules)}, Mode::kDefault);
    const Job job = bench.job_of(worker);
    EXPECT_EQ(job.kind, Job::Kind::kCompile);
    return job;
  }
  static ProgramKernel served(CoreBench& bench) {
    bench.store_all();
    const Answer answer = bench.one<Answer>();
    EXPECT_TRUE(answer.reply.outcome)
        << (answer.reply.outcome ? "" : answer.reply.outcome.error().message);
    const auto program = program_from_json(answer.reply.program_json);
    return program ? program->kernels.front() : ProgramKernel{};
  }
  static Error refused(CoreBench& bench) {
    bench.store_all();
    const Answer answer = bench.one<Answer>();
    EXPECT_FALSE(answer.reply.outcome);
    return answer.reply.outcome ? Error{} : answer.reply.outcome.error();
  }
};

TEST_F(CoreConfirmation, AnotherKeysWorkerBuildsItAgainAndBothAreNamed) {
  CoreBench bench(confirming(1));
  const Job job = built_by(bench, "w", "alice");
  bench.report_of_key("v", "bob");
  bench.report_of_key("w", "alice", {ok_result(job, 0, 0)});
  EXPECT_TRUE(bench.none<Answer>()) << "not on one's word";
  bench.report_of_key("v", "bob");
  const Job again = bench.job_of("v");
  ASSERT_EQ(indices(again), (std::vector<int>{0}));
  EXPECT_TRUE(again.candidates[0].binary.empty()) << "it builds for itself";
  bench.report_of_key("v", "bob", {ok_result(again, 0, 0)});
  const ProgramKernel kernel = served(bench);
  EXPECT_EQ(kernel.provenance.built, (Reporter{"w", "alice"}));
  EXPECT_EQ(kernel.provenance.confirmed, (std::vector<Reporter>{{"v", "bob"}}));
  EXPECT_EQ(keys_that_vouch(kernel.provenance), 2);
}

TEST_F(CoreConfirmation, AKeysOtherWorkerIsNotAskedAndWhereNobodyElseIsItIsServed) {
  CoreBench bench(confirming(1));
  const Job job = built_by(bench, "w", "alice");
  bench.report_of_key("v", "alice");
  bench.report_of_key("w", "alice", {ok_result(job, 0, 0)});
  EXPECT_TRUE(served(bench).provenance.confirmed.empty());
}

TEST_F(CoreConfirmation, WithConfirm2NothingIsServedUntilAnotherKeyComes) {
  CoreBench bench(confirming(2));
  const Job job = built_by(bench, "w", "alice");
  bench.report_of_key("w", "alice", {ok_result(job, 0, 0)});
  bench.store_all();
  bench.tick(10'000);
  EXPECT_TRUE(bench.none<Answer>());
  bench.report_of_key("v", "bob");
  const Job again = bench.job_of("v");
  ASSERT_EQ(indices(again), (std::vector<int>{0}));
  bench.report_of_key("v", "bob", {ok_result(again, 0, 0)});
  EXPECT_EQ(keys_that_vouch(served(bench).provenance), 2);
}

TEST_F(CoreConfirmation, WithConfirm2AndNobodyElseItIsRefusedWithTheReason) {
  CoreBench bench(confirming(2));
  const Job job = built_by(bench, "w", "alice");
  bench.report_of_key("w", "alice", {ok_result(job, 0, 0)});
  for (int i = 0; i < 8; ++i) {
    bench.tick(5'000);
    bench.report_of_key("w", "alice");
  }
  const Error error = refused(bench);
  EXPECT_EQ(error.code, Code::kUnavailable);
  EXPECT_NE(error.message.find("--confirm 2"), std::string::npos) << error.message;
}

// One honest of two: whoever lies, in whichever role, nothing wrong is served.
TEST_F(CoreConfirmation, OtherBytesThanTheSecondBuiltAreNotServed) {
  CoreBench bench(confirming(2));
  const Job job = built_by(bench, "evil", "mallory");
  bench.report_of_key("honest", "alice");
  bench.report_of_key("evil", "mallory", {with_binary(ok_result(job, 0, 0), "malware")});
  bench.report_of_key("honest", "alice");
  const Job again = bench.job_of("honest");
  bench.report_of_key("honest", "alice", {ok_result(again, 0, 0)});
  const Error error = refused(bench);
  EXPECT_EQ(error.code, Code::kUnavailable) << "not for good";
  EXPECT_NE(error.message.find("mallory"), std::string::npos) << error.message;
  EXPECT_FALSE(bench.none<LogDisputed>());
}

TEST_F(CoreConfirmation, AWrongResultThatTheSecondFindsIsNotServed) {
  for (const int confirm : {1, 2}) {
    CoreBench bench(confirming(confirm));
    const Job job = built_by(bench, "evil", "mallory");
    bench.report_of_key("honest", "alice");
    bench.report_of_key("evil", "mallory", {ok_result(job, 0, 0)});
    bench.report_of_key("honest", "alice");
    const Job again = bench.job_of("honest");
    bench.report_of_key("honest", "alice", {bad_result(again, 0, Verdict::kWrongResult)});
    EXPECT_EQ(refused(bench).code, Code::kUnavailable) << confirm;
  }
}

TEST_F(CoreConfirmation, AThirdDecidesAndTheLiarGetsNoMoreWork) {
  CoreBench bench(confirming(1));
  const Job job = built_by(bench, "evil", "mallory");
  bench.report_of_key("honest", "alice");
  bench.report_of_key("evil", "mallory", {with_binary(ok_result(job, 0, 0), "malware")});
  bench.report_of_key("honest", "alice");
  const Job again = bench.job_of("honest");
  bench.report_of_key("honest", "alice", {bad_result(again, 0, Verdict::kWrongResult)});
  // Nobody was there to decide: given up, to be asked again.
  EXPECT_EQ(refused(bench).code, Code::kUnavailable);

  CoreBench three(confirming(1));
  const Job lie = built_by(three, "evil", "mallory");
  three.report_of_key("honest", "alice");
  three.report_of_key("third", "bob");
  three.report_of_key("evil", "mallory", {ok_result(lie, 0, 0)});
  for (const auto& [worker, owner] : {std::pair{"honest", "alice"}, std::pair{"third", "bob"}}) {
    three.report_of_key("honest", "alice");
    three.report_of_key("third", "bob");
    Job asked;
    WorkerId by;
    for (SendOrders& orders : three.take<SendOrders>())
      if (!orders.orders.jobs.empty()) asked = orders.orders.jobs.front(), by = orders.worker;
    ASSERT_FALSE(by.empty()) << worker;
    three.report_of_key(by, by == "honest" ? "alice" : "bob",
                        {bad_result(asked, 0, Verdict::kWrongResult)});
  }
  const Distrust distrusted = three.one<Distrust>();
  EXPECT_EQ(distrusted.worker, "evil");
  EXPECT_EQ(distrusted.owner, "mallory");
  const Stats stats = three.core().stats(three.now_ms);
  for (const WorkerStats& worker : stats.workers)
    EXPECT_EQ(worker.state, worker.name == "evil" ? "quarantined" : "serving") << worker.name;
}

TEST_F(CoreConfirmation, WhoCallsEverythingWrongRefusesNothingForGood) {
  CoreBench bench(confirming(1));
  const Job job = built_by(bench, "evil", "mallory");
  bench.report_of_key("honest", "alice");
  bench.report_of_key("evil", "mallory", {bad_result(job, 0, Verdict::kWrongResult)});
  EXPECT_TRUE(bench.none<Answer>()) << "a second opinion is sought first";
  bench.step(WorkerGone{"evil"});
  bench.report_of_key("honest", "alice");
  const Job again = bench.job_of("honest");
  ASSERT_EQ(indices(again), (std::vector<int>{0}));
  bench.report_of_key("honest", "alice", {ok_result(again, 0, 0)});
  EXPECT_EQ(served(bench).provenance.built, (Reporter{"honest", "alice"}));
}

TEST_F(CoreConfirmation, TwoOwnersRefuseAProgramForGood) {
  CoreBench bench(confirming(1));
  const Job job = built_by(bench, "w", "alice");
  bench.report_of_key("v", "bob");
  bench.report_of_key("w", "alice", {bad_result(job, 0, Verdict::kWrongResult)});
  bench.report_of_key("v", "bob");
  const Job again = bench.job_of("v");
  bench.report_of_key("v", "bob", {bad_result(again, 0, Verdict::kWrongResult)});
  EXPECT_EQ(refused(bench).code, Code::kInternal);
}

// A record of an earlier incarnation: the same, when its worker is not there any more.
TEST_F(CoreConfirmation, OneWorkersVerdictOnRecordIsTriedAgainByAnother) {
  CoreBench bench(confirming(1));
  PlannedKernel kernel = planned_kernel("k", 1);
  kernel.records = {record_of(kernel, 0, 1)};
  kernel.records[0].verdict = Verdict::kWrongResult;
  kernel.records[0].worker = "evil";
  kernel.records[0].owner = "mallory";
  bench.report_of_key("honest", "alice");
  bench.start({kernel});
  const Job job = bench.job_of("honest");
  ASSERT_EQ(indices(job), (std::vector<int>{0}));
  bench.report_of_key("honest", "alice", {ok_result(job, 0, 10)});
  EXPECT_EQ(served(bench).provenance.built, (Reporter{"honest", "alice"}));
}

TEST_F(CoreConfirmation, ATimeThatIsNotFoundAgainDoesNotWin) {
  CoreOptions options = confirming(2);
  options.policy.finalists = 2;
  options.batch_size = 1;
  CoreBench bench(options);
  bench.report_of_key("evil", "mallory");
  bench.report_of_key("honest", "alice");
  bench.start({planned_kernel("k", 2)});
  const auto us = [](const WorkerId& worker, int candidate) {
    if (worker == "evil") return candidate == 1 ? 0.1 : 9.0;  // the slow one shall win
    return candidate == 1 ? 30.0 : 10.0;
  };
  for (int round = 0; round < 30 && bench.done.size() < 1000; ++round) {
    for (const auto& [worker, owner] :
         {std::pair{std::string("evil"), "mallory"}, std::pair{std::string("honest"), "alice"}}) {
      bench.report_of_key(worker, owner);
      const Job job = bench.job_of(worker);
      std::vector<CandidateResult> results;
      for (const CandidateJob& c : job.candidates)
        results.push_back(ok_result(job, c.index, us(worker, c.index)));
      if (!results.empty()) bench.report_of_key(worker, owner, std::move(results));
      std::vector<Action> kept;
      for (Action& action : bench.done)
        if (!std::holds_alternative<SendOrders>(action)) kept.push_back(std::move(action));
      bench.done = std::move(kept);
      for (auto& records : bench.take<StoreRecords>())
        bench.step(RecordsStored{records.worker, records.acks});
    }
  }
  const ProgramKernel kernel = served(bench);
  EXPECT_EQ(kernel.schedule, schedule_of(0).to_string());
  EXPECT_EQ(keys_that_vouch(kernel.provenance), 2);
}

TEST_F(CoreConfirmation, OfOneKeysWorkersASampleIsConfirmedByAnother) {
  CoreOptions options = confirming(1);
  options.sample_one_in = 1;
  CoreBench bench(options);
  bench.report("w");
  bench.start({planned_kernel("k", 1)}, Mode::kDefault);
  const Job job = bench.job_of("w");
  bench.report("v");
  bench.report("w", {}, {ok_result(job, 0, 0)});
  EXPECT_TRUE(bench.none<Answer>());
  bench.report("v");
  const Job again = bench.job_of("v");
  ASSERT_EQ(indices(again), (std::vector<int>{0}));
  bench.report("v", {}, {ok_result(again, 0, 0)});
  EXPECT_EQ(served(bench).provenance.confirmed, (std::vector<Reporter>{{"v", ""}}));
}

TEST_F(CoreConfirmation, ASampleThatNobodyCouldBeAskedAboutIsStillOwed) {
  CoreOptions options = confirming(1);
  options.sample_one_in = 3;
  CoreBench bench(options);
  uint64_t number = 0;
  const auto build = [&](const std::string& name) {
    bench.start({planned_kernel(name, 1)}, Mode::kDefault, name, "c", ++number);
    bench.report("w");
    const Job job = bench.job_of("w");
    bench.report("w", {}, {ok_result(job, 0, 0)});
    bench.store_all();
  };
  for (const char* alone : {"k1", "k2", "k3"}) {
    build(alone);
    bench.one<Answer>();
  }
  bench.report("v");
  build("k4");
  EXPECT_TRUE(bench.none<Answer>()) << "its fourth, and none was confirmed";
  bench.report("v");
  EXPECT_EQ(indices(bench.job_of("v")), (std::vector<int>{0}));
}

TEST_F(CoreConfirmation, WhoIsAskedAndLeavesIsDoneWithout) {
  CoreBench bench(confirming(1));
  const Job job = built_by(bench, "w", "alice");
  bench.report_of_key("v", "bob");
  bench.report_of_key("w", "alice", {ok_result(job, 0, 0)});
  bench.step(WorkerGone{"v"});
  bench.tick(100);
  EXPECT_TRUE(served(bench).provenance.confirmed.empty());
}

TEST_F(CoreConfirmation, AnotherCompilerCannotConfirm) {
  CoreBench bench(confirming(1));
  const Job job = built_by(bench, "w", "alice");
  WorkerReport other = bench.report_of("v");
  other.toolkit = "clang";
  bench.step(ReportReceived{"v", other, nullptr, "bob"});
  bench.report_of_key("w", "alice", {ok_result(job, 0, 0)});
  EXPECT_TRUE(served(bench).provenance.confirmed.empty());
}

}  // namespace
}  // namespace kiln
