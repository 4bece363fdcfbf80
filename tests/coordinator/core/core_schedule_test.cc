// The order in which workers get work: tenants and priorities, batches by time, stragglers, quarantine,
// calibration, drain, bounds.
#include <algorithm>
#include <map>

#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

CoreOptions one_at_a_time() {
  CoreOptions options;
  options.batch_size = options.max_batch = 1;
  return options;
}

// From nothing to a task that tunes `kernels` of `candidates` each for `user`.
void start_for(CoreBench& bench, const std::string& user, const std::string& graph, int kernels,
               int candidates, Priority priority = Priority::kInteractive,
               const ClientId& client = "") {
  CompileRequest request;
  request.request = 1;
  request.graph = digest_of(graph);
  request.target = cpu_target();
  request.mode = Mode::kMaxAutotune;
  request.priority = priority;
  request.graph_text = "graph";
  bench.step(RequestReceived{client.empty() ? "client of " + graph : client, request, user});
  bench.miss(bench.key(graph));
  std::vector<PlannedKernel> planned;
  for (int i = 0; i < kernels; ++i)
    planned.push_back(planned_kernel(graph + "/" + std::to_string(i), candidates));
  bench.plan(planned, Mode::kMaxAutotune, graph);
}

// One worker takes `leases` leases, each done in 100 ms: how many went to which graph.
std::map<std::string, int> serve(CoreBench& bench, const WorkerId& worker, int leases) {
  std::map<std::string, int> served;
  for (int i = 0; i < leases; ++i) {
    const Job job = bench.job_of(worker);
    if (job.lease == 0) break;
    const std::string name = job.workload_text.substr(std::string("workload ").size());
    ++served[name.substr(0, name.find('/'))];
    bench.now_ms += 100;
    std::vector<CandidateResult> results;
    for (const CandidateJob& c : job.candidates)
      results.push_back(bad_result(job, c.index, Verdict::kCompileFailed));
    bench.report(worker, {}, std::move(results));
    bench.store_all();
  }
  return served;
}

TEST(CoreTenants, AUserWithManyConnectionsIsOneTenant) {
  CoreBench bench(one_at_a_time());
  bench.report("w");
  for (int i = 0; i < 5; ++i) start_for(bench, "greedy", "g" + std::to_string(i), 1, 50);
  start_for(bench, "modest", "m", 1, 50);
  const auto served = serve(bench, "w", 40);
  EXPECT_NEAR(served.at("m"), 20, 2);
}

TEST(CoreTenants, WithoutAUserTheConnectionIsTheTenant) {
  CoreBench bench(one_at_a_time());
  bench.report("w");
  for (const char* graph : {"a", "b", "c", "d"}) start_for(bench, "", graph, 1, 50);
  for (const auto& [graph, leases] : serve(bench, "w", 40)) EXPECT_NEAR(leases, 10, 1) << graph;
}

TEST(CoreTenants, AUserWhoJoinsATaskLendsItTheirTurns) {
  CoreBench bench(one_at_a_time());
  bench.report("w");
  for (int i = 0; i < 9; ++i) start_for(bench, "greedy", "g" + std::to_string(i), 1, 50);
  CompileRequest join;
  join.request = 7;
  join.graph = digest_of("g3");
  join.target = cpu_target();
  join.mode = Mode::kMaxAutotune;
  bench.step(RequestReceived{"late", join, "modest"});
  const auto served = serve(bench, "w", 40);
  EXPECT_GE(served.at("g3"), 18);
  bench.step(RequestCancelled{"late", 7});
  EXPECT_LE(serve(bench, "w", 40)["g3"], 8) << "and takes it away again";
}

TEST(CoreTenants, InteractiveGoesBeforeWarmUpWhichGoesOnAllTheSame) {
  CoreBench bench(one_at_a_time());
  bench.report("w");
  start_for(bench, "ci", "warm", 1, 100, Priority::kWarmUp);
  start_for(bench, "ci", "now", 1, 100, Priority::kInteractive, "another");
  const auto served = serve(bench, "w", 40);
  EXPECT_EQ(served.at("warm"), 1 + 40 / 8 - 1)
      << "the first, before anybody else came, and each 8th";
}

TEST(CoreBatches, FollowTheTimeCandidatesTake) {
  CoreOptions options;
  options.batch_size = 2;
  options.lease_work_ms = 1'000;
  CoreBench bench(options);
  bench.report("w");
  start_for(bench, "", "g", 1, 200);
  Job job = bench.job_of("w");
  EXPECT_EQ(job.candidates.size(), 2u) << "nothing is known yet";
  const auto finish = [&](int64_t each_ms) {
    bench.now_ms += each_ms * std::ssize(job.candidates);
    std::vector<CandidateResult> results;
    for (const CandidateJob& c : job.candidates) results.push_back(ok_result(job, c.index, 10));
    bench.report("w", {}, std::move(results));
    bench.store_all();
    job = bench.job_of("w");
  };
  for (int i = 0; i < 3; ++i) finish(50);
  EXPECT_EQ(job.candidates.size(), 20u);
  for (int i = 0; i < 3; ++i) finish(250);
  EXPECT_EQ(job.candidates.size(), 4u);
  finish(5'000);
  for (int i = 0; i < 20; ++i) finish(5'000);
  EXPECT_EQ(job.candidates.size(), 1u) << "never none";
}

// Two workers; "slow" has the last candidate of the kernel, after enough others to know the
// latency.
class Straggler : public ::testing::Test {
 protected:
  Straggler() : bench_(one_at_a_time()) {
    bench_.report("slow");
    start_for(bench_, "", "g", 1, 5);
    late_ = bench_.job_of("slow");
    bench_.report("quick");
    for (int i = 0; i < 4; ++i) {
      const Job job = bench_.job_of("quick");
      bench_.now_ms += 100;
      bench_.report("quick", {}, {ok_result(job, job.candidates.at(0).index, 10 + i)});
      bench_.store_all();
      alive();
    }
    bench_.take<SendOrders>();
  }
  void alive() { bench_.report("slow", {{late_.lease, late_.epoch, 0}}); }
  CoreBench bench_;
  Job late_;
};

TEST_F(Straggler, LastBatchIsGivenToASecondWorkerAndTheFirstResultCounts) {
  bench_.tick(500);
  EXPECT_EQ(bench_.job_of("quick").lease, 0u) << "a second is not yet late";
  bench_.tick(500);
  const Job hedge = bench_.job_of("quick");
  EXPECT_EQ(indices(hedge), indices(late_));
  EXPECT_EQ(bench_.core().stats(bench_.now_ms).hedged, 1);
  bench_.report("quick", {}, {ok_result(hedge, hedge.candidates.at(0).index, 5)});
  for (const SendOrders& orders : bench_.take<SendOrders>())
    if (orders.worker == "slow") {
      EXPECT_TRUE(orders.orders.leases.empty()) << "it may stop";
    }
  bench_.report("slow", {}, {ok_result(late_, late_.candidates.at(0).index, 500)});
  bench_.store_all();
  EXPECT_EQ(bench_.records.size(), 5u) << "measured once";
  const Program program = program_from_json(bench_.one<Answer>().reply.program_json).value();
  EXPECT_EQ(program.kernels[0].report.best_us, 5);
}

TEST_F(Straggler, MayWinItself) {
  bench_.tick(1'000);
  const Job hedge = bench_.job_of("quick");
  ASSERT_NE(hedge.lease, 0u);
  bench_.report("slow", {}, {ok_result(late_, late_.candidates.at(0).index, 5)});
  bench_.report("quick", {}, {ok_result(hedge, hedge.candidates.at(0).index, 6)});
  bench_.store_all();
  EXPECT_EQ(bench_.records.size(), 5u);
  EXPECT_TRUE(bench_.one<Answer>().reply.outcome.has_value());
}

TEST_F(Straggler, ThatDiesCostsNothingWhileTheSecondWorkerIsAtIt) {
  bench_.tick(1'000);
  const Job hedge = bench_.job_of("quick");
  bench_.step(WorkerGone{"slow"});
  EXPECT_EQ(bench_.core().stats(bench_.now_ms).retries, 0);
  EXPECT_EQ(bench_.core().stats(bench_.now_ms).candidates_queued, 0);
  bench_.report("quick", {}, {ok_result(hedge, hedge.candidates.at(0).index, 6)});
  bench_.store_all();
  EXPECT_TRUE(bench_.one<Answer>().reply.outcome.has_value());
}

TEST_F(Straggler, TransientFailureOfOneLeavesTheOtherToGoOn) {
  bench_.tick(1'000);
  const Job hedge = bench_.job_of("quick");
  bench_.report("quick", {},
                {bad_result(hedge, hedge.candidates.at(0).index, Verdict::kRunnerDied)});
  EXPECT_EQ(bench_.core().stats(bench_.now_ms).candidates_queued, 0);
  bench_.report("slow", {}, {ok_result(late_, late_.candidates.at(0).index, 5)});
  bench_.store_all();
  EXPECT_TRUE(bench_.one<Answer>().reply.outcome.has_value());
}

TEST_F(Straggler, IsLeftAloneWhenNobodyIsIdle) {
  bench_.step(WorkerGone{"quick"});
  bench_.tick(1'000);
  EXPECT_EQ(bench_.core().stats(bench_.now_ms).hedged, 0);
}

WorkerReport with_calibration(const CoreBench& bench, const WorkerId& worker, double sentinel_us,
                              std::vector<LeaseState> leases = {}) {
  WorkerReport report = bench.report_of(worker, std::move(leases));
  report.sentinel_us = sentinel_us;
  return report;
}

std::string state_of(CoreBench& bench, const WorkerId& worker) {
  for (const WorkerStats& row : bench.core().stats(bench.now_ms).workers)
    if (row.name == worker) return row.state;
  return "unknown";
}

void steady_calibration(CoreBench& bench, const WorkerId& worker, double us) {
  for (int i = 0; i < 5; ++i)
    bench.step(ReportReceived{worker, with_calibration(bench, worker, us + 0.01 * i)});
}

void drift(CoreBench& bench, const WorkerId& worker, double us,
           std::vector<LeaseState> leases = {}) {
  for (int i = 0; i < 3; ++i)
    bench.step(ReportReceived{worker, with_calibration(bench, worker, us + 0.01 * i, leases)});
}

TEST(CoreQuarantine, WorkerThatDriftsGetsNothingNewAndItsLeasesGoElsewhereWithoutBlame) {
  CoreBench bench(one_at_a_time());
  steady_calibration(bench, "w", 100);
  bench.take<SendOrders>();
  start_for(bench, "", "g", 1, 1);
  const Job job = bench.job_of("w");
  bench.report("v");
  bench.take<SendOrders>();
  drift(bench, "w", 150, {{job.lease, job.epoch, 0}});
  EXPECT_EQ(state_of(bench, "w"), "quarantined");
  const WorkerStats row = bench.core().stats(bench.now_ms).workers.at(1);
  EXPECT_NE(row.reason.find("sentinel drifted"), std::string::npos) << row.reason;
  EXPECT_EQ(indices(bench.job_of("v")), (std::vector<int>{0}));
  EXPECT_EQ(bench.core().stats(bench.now_ms).retries, 0);
  // What it still hands over was taken on a device that nobody trusts.
  bench.report("w", {}, {ok_result(job, 0, 1)});
  EXPECT_TRUE(bench.none<StoreRecords>());
}

TEST(CoreQuarantine, ASlowClockIsBetterThanNone) {
  CoreBench bench(one_at_a_time());
  steady_calibration(bench, "w", 100);
  drift(bench, "w", 150);
  EXPECT_EQ(state_of(bench, "w"), "serving");
  bench.report("v");
  bench.tick(100);
  EXPECT_EQ(state_of(bench, "w"), "quarantined");
  bench.step(WorkerGone{"v"});
  EXPECT_EQ(state_of(bench, "w"), "serving") << "it is the only one again";
}

TEST(CoreQuarantine, EndsWhenTheCalibrationIsGoodForAWhile) {
  CoreBench bench(one_at_a_time());
  steady_calibration(bench, "w", 100);
  bench.report("v");
  drift(bench, "w", 150);
  ASSERT_EQ(state_of(bench, "w"), "quarantined");
  for (int i = 0; i < 40; ++i) {
    bench.step(ReportReceived{"w", with_calibration(bench, "w", 100 + 0.01 * i)});
    bench.report("v");
    bench.tick(1'000);
    EXPECT_EQ(state_of(bench, "w"), i < 29 ? "quarantined" : "serving") << i;
  }
}

TEST(CoreQuarantine, DeviceFaultsCountEvenForTheOnlyOneAndAskersAreTold) {
  CoreBench bench;
  bench.report("w");
  WorkerReport report = bench.report_of("w");
  report.device_errors = 1;
  bench.step(ReportReceived{"w", report});
  EXPECT_EQ(state_of(bench, "w"), "quarantined");
  bench.ask("c", 1);
  bench.miss(bench.key());
  const Error error = bench.one<Answer>().reply.outcome.error();
  EXPECT_EQ(error.code, Code::kUnavailable);
  EXPECT_NE(error.message.find("cpu:x86-64-v3 [1 in quarantine]"), std::string::npos)
      << error.message;
}

TEST(CoreCalibration, ScreeningComparesDevicesByTheirCalibration) {
  CoreOptions options = one_at_a_time();
  options.policy.finalists = 1;
  CoreBench bench(options);
  for (const char* worker : {"a", "b", "c"}) steady_calibration(bench, worker, 100);
  for (int i = 0; i < 5; ++i)  // a slower card of the same model, as it always was
    bench.step(ReportReceived{"slow", with_calibration(bench, "slow", 120 + 0.01 * i)});
  bench.tick(1);
  bench.take<SendOrders>();
  start_for(bench, "", "g", 1, 4);
  std::map<WorkerId, Job> jobs;
  for (SendOrders& orders : bench.take<SendOrders>())
    for (Job& job : orders.orders.jobs) jobs[orders.worker] = job;
  ASSERT_EQ(jobs.size(), 4u);
  const int best = jobs.at("slow").candidates.at(0).index;
  for (const char* worker : {"a", "b", "c"}) {
    const Job& job = jobs.at(worker);
    WorkerReport report = with_calibration(bench, worker, 100.04);
    report.results = {ok_result(job, job.candidates.at(0).index, 10.5)};
    bench.step(ReportReceived{worker, report});
  }
  WorkerReport report = with_calibration(bench, "slow", 120.04);
  report.results = {ok_result(jobs.at("slow"), best, 11.4)};  // 9.5 on another card
  bench.step(ReportReceived{"slow", report});
  bench.store_all();
  const Program program = program_from_json(bench.one<Answer>().reply.program_json).value();
  EXPECT_EQ(program.kernels[0].schedule, schedule_of(best).to_string());
  for (const TuningRecord& record : bench.records) {
    if (record.schedule == schedule_of(best)) {
      EXPECT_EQ(record.measurement.median_us(), 11.4) << "as it was taken";
    }
  }
}

TEST(CoreCalibration, HoldsForRecordsThatAreReadAgain) {
  CoreOptions options = one_at_a_time();
  options.policy.finalists = 1;
  CoreBench bench(options);
  steady_calibration(bench, "a", 100);
  for (int i = 0; i < 5; ++i)
    bench.step(ReportReceived{"slow", with_calibration(bench, "slow", 120 + 0.01 * i)});
  bench.step(WorkerGone{"slow"});
  PlannedKernel planned = planned_kernel("k", 2);
  planned.records = {record_of(planned, 0, 10.5), record_of(planned, 1, 11.4)};  // 9.5 on "a"
  planned.records[0].worker = "a";
  planned.records[1].worker = "slow";
  bench.start({planned});
  const Job job = bench.job_of("a");
  EXPECT_EQ(job.kind, Job::Kind::kCompile) << "nothing is measured again";
  EXPECT_EQ(indices(job), std::vector<int>{1});
}

// After a crash of the coordinator those who took them may be gone for good: the records say how
// fast their devices were.
TEST(CoreCalibration, HoldsForRecordsOfWorkersThatThisIncarnationNeverSaw) {
  CoreOptions options = one_at_a_time();
  options.policy.finalists = 1;
  CoreBench bench(options);
  bench.report("new");
  bench.take<SendOrders>();
  PlannedKernel planned = planned_kernel("k", 2);
  planned.records = {record_of(planned, 0, 10.5), record_of(planned, 1, 11.4)};  // 9.5 at 100 us
  planned.records[0].worker = "a";
  planned.records[0].sentinel_us = 100;
  planned.records[1].worker = "slow";
  planned.records[1].sentinel_us = 120;
  for (TuningRecord& record : planned.records) record.target = cpu_target();
  bench.start({planned});
  const Job job = bench.job_of("new");
  EXPECT_EQ(job.kind, Job::Kind::kCompile) << "nothing is measured again";
  EXPECT_EQ(indices(job), std::vector<int>{1});
}

TEST(CoreCalibration, RecordsOfOneModelSayNothingOfAnother) {
  CoreOptions options = one_at_a_time();
  options.policy.finalists = 1;
  CoreBench bench(options);
  bench.report("new");
  bench.take<SendOrders>();
  PlannedKernel planned = planned_kernel("k", 2);
  planned.records = {record_of(planned, 0, 10.5), record_of(planned, 1, 11.4)};
  for (TuningRecord& record : planned.records) record.target = cpu_target();
  planned.records[0].sentinel_us = 100;
  planned.records[1].sentinel_us = 120;
  planned.records[1].target.device_model =
      "another";  // its calibration kernel is its own reference
  bench.start({planned});
  EXPECT_EQ(indices(bench.job_of("new")), std::vector<int>{0});
}

TEST(CoreDrain, OnRequestAWorkerIsToldAndGetsNothingNew) {
  CoreBench bench(one_at_a_time());
  bench.report("w");
  bench.take<SendOrders>();
  start_for(bench, "", "g", 1, 2);
  const Job job = bench.job_of("w");
  bench.report("w", {{job.lease, job.epoch, 0}});
  bench.take<SendOrders>();
  bench.step(DrainRequested{"w"});
  const SendOrders told = bench.one<SendOrders>();
  EXPECT_TRUE(told.orders.drain);
  EXPECT_EQ(told.orders.leases, (std::vector<uint64_t>{job.lease})) << "it finishes what it has";
  EXPECT_EQ(state_of(bench, "w"), "draining");
  bench.report("w", {}, {ok_result(job, 0, 10)});  // it has not heard yet
  const SendOrders again = bench.one<SendOrders>();
  EXPECT_TRUE(again.orders.drain);
  EXPECT_TRUE(again.orders.leases.empty());
  bench.step(DrainRequested{"nobody"});
  EXPECT_TRUE(bench.none<SendOrders>());
}

TEST(CoreBounds, TooManyQueuedCandidatesAreAnOverload) {
  CoreOptions options;
  options.max_candidates_queued = 10;
  options.retry_after_ms = 250;
  CoreBench bench(options);
  WorkerReport busy = bench.report_of("w");
  busy.slots = 0;
  bench.step(ReportReceived{"w", busy});
  start_for(bench, "", "g", 1, 12);
  EXPECT_EQ(bench.core().stats(bench.now_ms).candidates_queued, 12);
  CompileRequest request = bench.ask("c", 2, "another");
  bench.miss(bench.key("another"));
  const Error error = bench.one<Answer>().reply.outcome.error();
  EXPECT_EQ(error.code, Code::kOverloaded);
  EXPECT_EQ(error.retry_after_ms, 250);
  EXPECT_EQ(bench.core().stats(bench.now_ms).overloaded, 1);
}

TEST(CoreBounds, ATenantIsBoundedOverItsConnections) {
  CoreOptions options;
  options.max_open_requests_a_client = 2;
  CoreBench bench(options);
  bench.report("w");
  for (int i = 0; i < 3; ++i)
    start_for(bench, "greedy", "g" + std::to_string(i), 1, 2, Priority::kInteractive,
              "connection" + std::to_string(i));
  EXPECT_EQ(bench.one<Answer>().reply.outcome.error().code, Code::kOverloaded);
  EXPECT_EQ(bench.core().stats(bench.now_ms).requests_open, 2);
}

TEST(CoreFailures, CandidateThatKillsThreeRunnersIsSetAside) {
  CoreBench bench(one_at_a_time());
  for (const char* worker : {"a", "b", "c"}) bench.report(worker);
  bench.take<SendOrders>();
  start_for(bench, "", "g", 1, 1);
  for (int death = 1; death <= 3; ++death) {
    EXPECT_EQ(bench.core().stats(bench.now_ms).set_aside, 0);
    for (SendOrders& orders : bench.take<SendOrders>())
      for (Job& job : orders.orders.jobs)
        bench.report(orders.worker, {}, {bad_result(job, 0, Verdict::kRunnerDied)});
  }
  bench.store_all();
  EXPECT_EQ(bench.core().stats(bench.now_ms).set_aside, 1);
  const Error error = bench.one<Answer>().reply.outcome.error();
  EXPECT_EQ(error.code, Code::kInternal) << "it is the candidate, and not the fleet";
  // Asked again: no three more runners.
  start_for(bench, "", "g", 1, 1, Priority::kInteractive, "later");
  EXPECT_EQ(bench.one<Answer>().reply.outcome.error().message, error.message);
}

TEST(CoreFailures, WhatTheFleetIsToBlameForIsRememberedWithItsAge) {
  CoreBench bench(one_at_a_time());
  bench.report("w0");
  start_for(bench, "", "g", 1, 1);
  for (int i = 0; i < 4; ++i) {
    bench.report("w" + std::to_string(i));
    bench.step(WorkerGone{"w" + std::to_string(i)});
  }
  EXPECT_EQ(bench.one<Answer>().reply.outcome.error().code, Code::kUnavailable);
  bench.now_ms += 2'000;
  bench.report("w9");
  start_for(bench, "", "g", 1, 1, Priority::kInteractive, "later");
  const Error known = bench.one<Answer>().reply.outcome.error();
  EXPECT_NE(known.message.find("2.0 s ago"), std::string::npos) << known.message;
  EXPECT_EQ(known.retry_after_ms, 8'000);
}

TEST(CoreScale, ManyCandidatesWaitWhileEveryWorkerHasItsBatch) {
  CoreBench bench;
  for (int i = 0; i < 100; ++i) bench.report("w" + std::to_string(i));
  bench.take<SendOrders>();
  for (int graph = 0; graph < 10; ++graph)
    start_for(bench, "", "g" + std::to_string(graph), 10, 1'000);
  const Stats stats = bench.core().stats(bench.now_ms);
  EXPECT_EQ(stats.candidates_queued + 100 * 4, 100'000);
}

}  // namespace
}  // namespace kiln
