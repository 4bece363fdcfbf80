// Workers and leases: fencing, acknowledgements, retries, who gets which work.
#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

CoreOptions one_a_batch() {
  CoreOptions options;
  options.batch_size = 1;
  return options;
}

TEST(CoreLease, NewWorkIsPushedToAnIdleWorkerAtOnce) {
  CoreBench bench;
  bench.report("w");
  bench.take<SendOrders>();
  bench.start({planned_kernel("k", 1)});
  EXPECT_NE(bench.job_of("w").lease, 0u);
}

TEST(CoreLease, OrdersAreStateAndRepeatAJobUntilTheWorkerHasIt) {
  CoreBench bench;
  bench.report("w");
  bench.start({planned_kernel("k", 2)});
  const Job job = bench.job_of("w");
  bench.report("w");  // the orders were lost
  const SendOrders again = bench.one<SendOrders>();
  ASSERT_EQ(again.orders.jobs.size(), 1u);
  EXPECT_EQ(again.orders.jobs[0].lease, job.lease);
  bench.report("w", {{job.lease, job.epoch, 0}});
  const SendOrders known = bench.one<SendOrders>();
  EXPECT_TRUE(known.orders.jobs.empty());
  EXPECT_EQ(known.orders.leases, (std::vector<uint64_t>{job.lease}));
}

TEST(CoreLease, ResultIsAcknowledgedOnlyWhenItsRecordIsDurable) {
  CoreBench bench(one_a_batch());
  bench.report("w");
  bench.start({planned_kernel("k", 2)});
  const Job job = bench.job_of("w");
  bench.report("w", {}, {ok_result(job, 0, 10)});
  const StoreRecords store = bench.one<StoreRecords>();
  ASSERT_EQ(store.records.size(), 1u);
  EXPECT_EQ(store.records[0].schedule, schedule_of(0));
  EXPECT_EQ(store.records[0].worker, "w");
  EXPECT_EQ(store.records[0].binary, Digest::of("binary 0"));
  EXPECT_TRUE(bench.one<SendOrders>().orders.acks.empty());
  bench.report("w", {},
               {ok_result(job, 0, 10)});  // repeated: not taken twice, not acknowledged yet
  EXPECT_TRUE(bench.none<StoreRecords>());
  EXPECT_TRUE(bench.one<SendOrders>().orders.acks.empty());
  bench.step(RecordsStored{"w", store.acks});
  const SendOrders acked = bench.one<SendOrders>();
  ASSERT_EQ(acked.orders.acks.size(), 1u);
  EXPECT_EQ(acked.orders.acks[0].lease, job.lease);
  bench.report("w", {}, {ok_result(job, 0, 10)});  // the acknowledgement was lost
  EXPECT_TRUE(bench.none<StoreRecords>());
  EXPECT_EQ(bench.one<SendOrders>().orders.acks.size(), 1u);
  EXPECT_EQ(bench.core().stats(bench.now_ms).candidates_measured, 1);
}

TEST(CoreLease, WorkOfAWorkerThatIsGoneIsLeasedAgainUnderANewEpoch) {
  CoreBench bench;
  bench.report("w");
  bench.start({planned_kernel("k", 1)});
  const Job first = bench.job_of("w");
  bench.step(WorkerGone{"w"});
  EXPECT_TRUE(bench.none<SendOrders>());
  bench.report("v");
  const Job second = bench.job_of("v");
  EXPECT_EQ(indices(second), (std::vector<int>{0}));
  EXPECT_GT(second.epoch, first.epoch);
  EXPECT_NE(second.lease, first.lease);
  EXPECT_EQ(bench.core().stats(bench.now_ms).retries, 1);
  // The first worker was only slow: its result is acknowledged and changes nothing.
  bench.report("w", {{first.lease, first.epoch, 0}}, {ok_result(first, 0, 1)});
  EXPECT_TRUE(bench.none<StoreRecords>());
  const SendOrders orders = bench.one<SendOrders>();
  EXPECT_EQ(orders.orders.acks.size(), 1u);
  EXPECT_TRUE(orders.orders.leases.empty());
  bench.report("v", {}, {ok_result(second, 0, 10)});
  bench.store_all();
  const Program program = program_from_json(bench.one<Answer>().reply.program_json).value();
  EXPECT_EQ(program.kernels[0].report.best_us, 10);
}

TEST(CoreLease, ResultUnderAnotherEpochOfALiveLeaseIsRefused) {
  CoreBench bench;
  bench.report("w");
  bench.start({planned_kernel("k", 1)});
  const Job job = bench.job_of("w");
  CandidateResult stale = ok_result(job, 0, 1);
  stale.epoch = job.epoch + 1;
  bench.report("w", {{job.lease, job.epoch, 0}}, {stale});
  EXPECT_TRUE(bench.none<StoreRecords>());
  CandidateResult stranger = ok_result(job, 0, 1);
  bench.report("v", {}, {stranger});  // somebody else's lease
  EXPECT_TRUE(bench.none<StoreRecords>());
  CandidateResult beyond = ok_result(job, 7, 1);  // never leased
  bench.report("w", {{job.lease, job.epoch, 0}}, {beyond});
  EXPECT_TRUE(bench.none<StoreRecords>());
}

TEST(CoreLease, LeaseThatVanishesFromTheReportsIsLost) {
  CoreBench bench;
  bench.report("w");
  bench.start({planned_kernel("k", 1)});
  const Job first = bench.job_of("w");
  bench.report("w", {{first.lease, first.epoch, 0}});
  EXPECT_EQ(bench.job_of("w").lease, 0u);
  bench.report("w");
  const Job second = bench.job_of("w");
  EXPECT_EQ(indices(second), (std::vector<int>{0}));
  EXPECT_GT(second.epoch, first.epoch);
}

TEST(CoreLease, ProgressKeepsALeaseAndHeartbeatsAloneDoNot) {
  CoreBench bench;
  bench.report("w");
  bench.start({planned_kernel("k", 2)});
  const Job job = bench.job_of("w");
  int done = 0;
  for (int s = 0; s < 60; s += 5) {
    bench.now_ms += 5'000;
    if (s == 25) done = 1;
    bench.report("w", {{job.lease, job.epoch, done}});
    bench.step(Tick{});
    // The one step of progress, 30 s after the start, moves the end from 30 s to 60 s.
    EXPECT_EQ(bench.core().stats(bench.now_ms).retries, s < 55 ? 0 : 2) << s;
  }
}

TEST(CoreLease, SilentWorkerIsGone) {
  CoreBench bench;
  bench.report("w");
  bench.start({planned_kernel("k", 1)});
  bench.tick(10'000);
  EXPECT_TRUE(bench.core().stats(bench.now_ms).workers.empty());
  EXPECT_EQ(bench.core().stats(bench.now_ms).retries, 1);
}

TEST(CoreLease, TransientFailureIsRetriedElsewhereAtMostThreeTimes) {
  CoreBench bench(one_a_batch());
  bench.report("w");
  bench.start({planned_kernel("k", 2)});
  const Job first = bench.job_of("w");
  bench.report("w", {}, {bad_result(first, 0, Verdict::kRunnerDied)});
  bench.report("v");
  // v gets the candidate that failed on w, w gets the other.
  Job on_v, on_w;
  for (SendOrders& orders : bench.take<SendOrders>())
    for (Job& job : orders.orders.jobs) (orders.worker == "v" ? on_v : on_w) = job;
  EXPECT_EQ(indices(on_w), (std::vector<int>{1}));
  EXPECT_EQ(indices(on_v), (std::vector<int>{0}));
  bench.report("v", {}, {bad_result(on_v, 0, Verdict::kTimedOut)});
  EXPECT_EQ(bench.job_of("v").lease, 0u) << "failed here last, and w can have it";
  bench.report("w", {}, {ok_result(on_w, 1, 10)});
  Job third = bench.job_of("w");
  EXPECT_EQ(indices(third), (std::vector<int>{0}));
  bench.report("w", {}, {bad_result(third, 0, Verdict::kDeviceLost)});
  bench.report("v");
  const Job fourth = bench.job_of("v");
  EXPECT_EQ(indices(fourth), (std::vector<int>{0}));
  bench.report("v", {}, {bad_result(fourth, 0, Verdict::kRunnerDied)});
  bench.store_all();
  const Program program = program_from_json(bench.one<Answer>().reply.program_json).value();
  EXPECT_EQ(program.kernels[0].report, (KernelReport{2, 1, 1, 10, 0}));
  EXPECT_EQ(bench.core().stats(bench.now_ms).retries, 3);
}

TEST(CoreLease, CandidateThatKillsWorkersIsSetAsideAndTheFleetIsBlamed) {
  CoreBench bench;
  bench.report("w0");
  bench.start({planned_kernel("k", 1)});
  for (int i = 0; i < 4; ++i) {
    const WorkerId worker = "w" + std::to_string(i);
    bench.report(worker);
    EXPECT_TRUE(bench.none<Answer>());
    bench.step(WorkerGone{worker});
  }
  const Error error = bench.one<Answer>().reply.outcome.error();
  EXPECT_EQ(error.code, Code::kUnavailable);
  EXPECT_NE(error.message.find("1 runner_died"), std::string::npos);
  const LogAbandoned told = bench.one<LogAbandoned>();
  EXPECT_EQ(told.kernel, digest_of("kernel k"));
  EXPECT_EQ(told.worker, "w3");
  EXPECT_EQ(told.candidates, 1);
}

TEST(CoreLease, RetriedCandidateGoesAloneSoThatItsNeighboursAreNotBlamed) {
  CoreBench bench;
  bench.report("w");
  bench.start({planned_kernel("k", 3)});
  EXPECT_EQ(indices(bench.job_of("w")).size(), 3u);
  bench.step(WorkerGone{"w"});
  bench.report("v");
  EXPECT_EQ(indices(bench.job_of("v")).size(), 1u);
}

TEST(CoreLease, CutShortFinalIsRunAgainWhole) {
  CoreOptions options;
  options.policy.finalists = 2;
  CoreBench bench(options);
  bench.report("w");
  bench.start({planned_kernel("k", 2)});
  Job job = bench.job_of("w");
  bench.report("w", {}, {ok_result(job, 0, 10), ok_result(job, 1, 10.5)});
  job = bench.job_of("w");
  ASSERT_EQ(job.kind, Job::Kind::kFinal);
  bench.report("w", {{job.lease, job.epoch, 1}}, {ok_result(job, 0, 12, 40)});
  bench.step(WorkerGone{"w"});
  bench.report("v");
  const Job again = bench.job_of("v");
  EXPECT_EQ(again.kind, Job::Kind::kFinal);
  EXPECT_EQ(indices(again), (std::vector<int>{0, 1}));
  bench.report("v", {}, {ok_result(again, 0, 10, 40), ok_result(again, 1, 11, 40)});
  bench.store_all();
  const Program program = program_from_json(bench.one<Answer>().reply.program_json).value();
  EXPECT_EQ(program.kernels[0].report.best_us, 10);
}

TEST(CoreLease, FinalThatNeverEndsLeavesTheOrderOfTheScreening) {
  CoreOptions options;
  options.policy.finalists = 2;
  CoreBench bench(options);
  bench.report("w");
  bench.start({planned_kernel("k", 2)});
  Job job = bench.job_of("w");
  bench.report("w", {}, {ok_result(job, 0, 10.5), ok_result(job, 1, 10)});
  for (int i = 0; i <= options.max_retries; ++i) {
    job = bench.job_of("w");
    ASSERT_EQ(job.kind, Job::Kind::kFinal) << i;
    bench.report(
        "w", {},
        {bad_result(job, 0, Verdict::kDeviceLost), bad_result(job, 1, Verdict::kDeviceLost)});
  }
  bench.store_all();
  const Program program = program_from_json(bench.one<Answer>().reply.program_json).value();
  EXPECT_EQ(program.kernels[0].schedule, schedule_of(1).to_string());
}

TEST(CoreLease, WorkGoesOnlyWhereItRuns) {
  CoreBench bench;
  WorkerReport old = bench.report_of("old");
  old.target.isa = "x86-64-v2";
  WorkerReport newer = bench.report_of("newer");
  newer.target.isa = "x86-64-v4";
  bench.step(ReportReceived{"old", old});
  bench.step(ReportReceived{"newer", newer});
  bench.take<SendOrders>();
  bench.start({planned_kernel("k", 1)});
  const SendOrders orders = bench.one<SendOrders>();
  EXPECT_EQ(orders.worker, "newer");
  EXPECT_EQ(orders.orders.jobs.at(0).target, cpu_target());
}

TEST(CoreLease, DrainingWorkerKeepsItsLeasesAndGetsNothingNew) {
  CoreBench bench(one_a_batch());
  bench.report("w");
  bench.report("v");
  bench.take<SendOrders>();
  bench.start({planned_kernel("k", 4)});
  Job job;
  for (SendOrders& orders : bench.take<SendOrders>())
    if (orders.worker == "w") job = orders.orders.jobs.at(0);
  WorkerReport draining = bench.report_of("w", {{job.lease, job.epoch, 0}});
  draining.draining = true;
  bench.step(ReportReceived{"w", draining});
  EXPECT_EQ(bench.one<SendOrders>().orders.leases, (std::vector<uint64_t>{job.lease}));
  draining.leases.clear();
  draining.results = {ok_result(job, job.candidates[0].index, 10)};
  bench.step(ReportReceived{"w", draining});
  EXPECT_EQ(bench.take<StoreRecords>().size(), 1u);
  EXPECT_TRUE(bench.one<SendOrders>().orders.jobs.empty());
}

TEST(CoreLease, WorkerThatDrainsBeforeItsOrdersComeGivesTheLeaseBackAtOnce) {
  CoreBench bench;
  bench.report("w");
  bench.start({planned_kernel("k", 1)});
  EXPECT_NE(bench.job_of("w").lease, 0u);
  WorkerReport draining = bench.report_of("w");
  draining.draining = true;
  bench.step(ReportReceived{"w", draining});
  bench.report("v");
  EXPECT_EQ(indices(bench.job_of("v")), (std::vector<int>{0}));
}

TEST(CoreLease, WorkerWithoutAFreeSlotStillServesItsTarget) {
  CoreBench bench;
  WorkerReport full = bench.report_of("w");
  full.slots = 0;
  bench.step(ReportReceived{"w", full});
  bench.start({planned_kernel("k", 1)});
  EXPECT_TRUE(bench.none<Answer>());
  EXPECT_EQ(bench.job_of("w").lease, 0u);
  bench.report("w");
  EXPECT_NE(bench.job_of("w").lease, 0u);
}

TEST(CoreLease, ClientWithManyKernelsDoesNotKeepAnotherWaiting) {
  CoreBench bench(one_a_batch());
  bench.report("w");
  std::vector<PlannedKernel> many;
  for (int i = 0; i < 20; ++i) many.push_back(planned_kernel("many" + std::to_string(i), 4));
  bench.start(many, Mode::kMaxAutotune, "large", "greedy", 1);
  bench.start({planned_kernel("one", 2)}, Mode::kMaxAutotune, "small", "modest", 1);
  int turns = 0;
  for (bool answered = false; !answered; ++turns) {
    ASSERT_LT(turns, 6);
    const Job job = bench.job_of("w");
    const int index = job.candidates.at(0).index;
    bench.report("w", {}, {ok_result(job, index, 10 + 10 * index)});
    bench.store_all();
    answered = !bench.none<Answer>();
  }
}

TEST(CoreLease, KernelsTakeTurns) {
  CoreOptions options = one_a_batch();
  CoreBench bench(options);
  bench.report("w");
  bench.start({planned_kernel("k", 9), planned_kernel("l", 2)});
  std::vector<std::string> order;
  for (int i = 0; i < 4; ++i) {
    const Job job = bench.job_of("w");
    order.push_back(job.workload_text);
    bench.report("w", {}, {ok_result(job, job.candidates.at(0).index, 10)});
  }
  EXPECT_EQ(order,
            (std::vector<std::string>{"workload k", "workload l", "workload k", "workload l"}));
}

TEST(CoreLease, BatchesShrinkSoThatEveryWorkerHelps) {
  CoreBench bench;
  for (const char* worker : {"a", "b", "c"}) bench.report(worker);
  bench.take<SendOrders>();
  bench.start({planned_kernel("k", 3)});
  const auto orders = bench.take<SendOrders>();
  ASSERT_EQ(orders.size(), 3u);
  for (const SendOrders& each : orders) EXPECT_EQ(each.orders.jobs.at(0).candidates.size(), 1u);
}

TEST(CoreLease, SlotsBoundTheLeasesOfAWorker) {
  CoreBench bench(one_a_batch());
  WorkerReport report = bench.report_of("w");
  report.slots = 3;
  bench.step(ReportReceived{"w", report});
  bench.take<SendOrders>();
  bench.start({planned_kernel("k", 9)});
  EXPECT_EQ(bench.one<SendOrders>().orders.jobs.size(), 3u);
}

TEST(CoreLease, TaskOutlivesARestartOfItsOnlyWorkerButNotItsAbsence) {
  CoreBench bench;
  bench.report("w");
  bench.start({planned_kernel("k", 1)});
  bench.step(WorkerGone{"w"});
  bench.step(Tick{});
  bench.tick(29'999);
  EXPECT_TRUE(bench.none<Answer>());
  bench.report("v");
  const Job job = bench.job_of("v");
  EXPECT_EQ(indices(job), (std::vector<int>{0}));
  bench.step(WorkerGone{"v"});
  bench.step(Tick{});
  bench.tick(30'000);
  EXPECT_EQ(bench.one<Answer>().reply.outcome.error().code, Code::kUnavailable);
  // Not remembered: with a worker the next ask is served.
  bench.report("u");
  bench.start({planned_kernel("k", 1)}, Mode::kMaxAutotune, "g", "c", 2);
  EXPECT_NE(bench.job_of("u").lease, 0u);
}

TEST(CoreLease, TaskMayWaitForTheFirstWorkerWhenToldSo) {
  CoreOptions options;
  options.max_waiting_for_worker_ms = 5'000;
  CoreBench bench(options);
  bench.start({planned_kernel("k", 1)});
  bench.step(Tick{});
  EXPECT_TRUE(bench.none<Answer>());
  bench.tick(5'000);
  EXPECT_EQ(bench.one<Answer>().reply.outcome.error().code, Code::kUnavailable);
}

TEST(CoreLease, LeaseIdsStartWhereTheShellSays) {
  CoreOptions options;
  options.first_lease = 1'000'000;
  CoreBench bench(options);
  bench.report("w");
  bench.start({planned_kernel("k", 1)});
  EXPECT_EQ(bench.job_of("w").lease, 1'000'000u);
}

}  // namespace
}  // namespace kiln
