// Requests with `now`: a max-autotune program that is not tuned yet is answered with tier 0, the
// `default` program, and tuned though nobody waits.
#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

class CoreTier0 : public ::testing::Test {
 protected:
  CompileRequest ask(const ClientId& client, uint64_t number, bool now = true, bool check = false) {
    CompileRequest request;
    request.request = number;
    request.graph = digest_of("g");
    request.target = cpu_target();
    request.mode = Mode::kMaxAutotune;
    request.early = true;
    request.now = now;
    request.check_only = check;
    bench.step(RequestReceived{client, request});
    return request;
  }
  Digest tuned() const { return bench.key(); }
  Digest tier0() const { return bench.key("g", Mode::kDefault); }
  void found_tier0() { bench.step(ProgramLookedUp{tier0(), kDefault}); }
  static void expect_tier0(const Answer& answer, const std::string& json = kDefault) {
    ASSERT_TRUE(answer.reply.outcome) << answer.reply.outcome.error().message;
    EXPECT_TRUE(answer.reply.tier0);
    EXPECT_EQ(answer.reply.program_json, json);
  }
  // Up to where the max-autotune program is planned, and "c" waits for tier 0.
  void start() {
    const CompileRequest request = ask("c", 1);
    bench.miss(tuned());
    EXPECT_EQ(bench.one<AskForGraph>().client, "c");
    bench.take<LookUpProgram>();
    bench.upload("c", request, "text of g");
    EXPECT_EQ(bench.one<StartPlan>().mode, Mode::kMaxAutotune);
    EXPECT_EQ(bench.one<LookUpProgram>().program, tier0());
  }
  void report(std::vector<CandidateResult> results = {}) {
    WorkerReport report = bench.report_of("w", {}, std::move(results));
    report.builds = true;
    report.compilers = 4;
    bench.step(ReportReceived{"w", std::move(report)});
  }
  std::vector<Job> jobs() {
    std::vector<Job> jobs;
    for (SendOrders& orders : bench.take<SendOrders>()) jobs = std::move(orders.orders.jobs);
    return jobs;
  }
  Stats stats() { return bench.core().stats(bench.now_ms); }

  void SetUp() override {
    report();
    bench.take<SendOrders>();
  }
  static constexpr char kDefault[] = R"({"default": true})";
  CoreBench bench;
};

TEST_F(CoreTier0, TheStoredDefaultProgramIsAnsweredAndTheOtherIsQueuedAndTuned) {
  start();
  found_tier0();
  expect_tier0(bench.one<Answer>());
  EXPECT_EQ(stats().answered_tier0, 1);
  EXPECT_EQ(stats().requests_open, 0);
  bench.plan({planned_kernel("k", 1)});
  const auto store = bench.one<StoreDetached>();
  EXPECT_EQ(store.task.mode, Mode::kMaxAutotune);
  EXPECT_EQ(store.graph_text, "text of g");
  bench.step(DetachedStored{store.key, store.task, {}});
  const Job job = bench.job_of("w");
  ASSERT_EQ(job.candidates.size(), 1u);
  report({ok_result(job, 0, 10)});
  bench.store_all();
  ASSERT_EQ(bench.programs.size(), 1u);
  EXPECT_EQ(bench.programs[0].key, tuned());
  EXPECT_TRUE(bench.none<Answer>());
  EXPECT_EQ(stats().flights_open, 0);
}

TEST_F(CoreTier0, WithoutOneTheDefaultProgramIsBuiltFromTheSameUploadAndAnsweredEarly) {
  start();
  bench.miss(tier0());
  EXPECT_TRUE(bench.none<AskForGraph>());
  const auto plan = bench.one<StartPlan>();
  EXPECT_EQ(plan.mode, Mode::kDefault);
  EXPECT_EQ(plan.graph_text, "text of g");
  bench.plan({planned_kernel("k", 2)}, Mode::kDefault);
  const auto built = jobs();
  ASSERT_EQ(built.size(), 1u);
  ASSERT_EQ(built[0].kind, Job::Kind::kBuild);
  CandidateResult result = ok_result(built[0], 0, 0);
  result.measurement = {};
  report({result});
  const auto answer = bench.one<Answer>();
  EXPECT_TRUE(answer.reply.tier0);
  EXPECT_TRUE(answer.is_early);
}

TEST_F(CoreTier0, TheSameRequestWithoutNowWaitsForTheTunedProgram) {
  start();
  found_tier0();
  bench.take<Answer>();
  bench.plan({planned_kernel("k", 1)});
  ask("c", 2, false);
  EXPECT_TRUE(bench.none<Answer>());
  report({ok_result(bench.job_of("w"), 0, 10)});
  bench.store_all();
  const auto answer = bench.one<Answer>();
  EXPECT_EQ(answer.reply.request, 2);
  EXPECT_FALSE(answer.reply.tier0);
}

TEST_F(CoreTier0, WhoComesWhileItIsTunedIsAnsweredAtOnceAndItGoesOnWhenTheOthersLeave) {
  bench.start({planned_kernel("k", 1)});
  EXPECT_TRUE(bench.none<StoreDetached>());
  ask("now", 1);
  EXPECT_EQ(bench.one<StoreDetached>().task.mode, Mode::kMaxAutotune);
  found_tier0();
  const auto answer = bench.one<Answer>();
  EXPECT_EQ(answer.client, "now");
  expect_tier0(answer);
  bench.step(RequestCancelled{"c", 1});
  EXPECT_EQ(stats().flights_open, 1) << "it is being queued";
}

// The simulation found it (pool, seed 4112): the program stayed outside of the bound on what runs though
// nobody waits.
TEST_F(CoreTier0, WhoComesWhileItIsBeingQueuedDoesNotKeepItWhenThatFails) {
  start();
  found_tier0();
  bench.take<Answer>();
  bench.plan({planned_kernel("k", 1)});
  const auto store = bench.one<StoreDetached>();
  ask("d", 1);
  found_tier0();
  EXPECT_EQ(bench.one<Answer>().client, "d");
  bench.step(DetachedStored{store.key, store.task, fail(Code::kUnavailable, "the disk is full")});
  EXPECT_EQ(stats().flights_open, 0);
}

TEST_F(CoreTier0, AHitAndACheckAreAsWithoutNow) {
  ask("c", 1);
  bench.step(ProgramLookedUp{tuned(), "{}"});
  EXPECT_FALSE(bench.one<Answer>().reply.tier0);
  ask("c", 2, true, true);
  bench.miss(tuned());
  EXPECT_EQ(bench.one<Answer>().reply.outcome.error().code, Code::kNotFound);
  EXPECT_EQ(stats().flights_open, 0);
}

TEST_F(CoreTier0, AStaleProgramIsAnsweredRatherThanTier0) {
  const CompileRequest request = ask("c", 1);
  bench.step(ProgramLookedUp{tuned(), R"({"old": true})", {}, true});
  bench.upload("c", request);
  const auto answer = bench.one<Answer>();
  EXPECT_TRUE(answer.reply.stale);
  EXPECT_FALSE(answer.reply.tier0);
  EXPECT_EQ(bench.one<StartPlan>().mode, Mode::kMaxAutotune);
}

TEST_F(CoreTier0, AStoredDefaultProgramIsAnsweredThoughNoWorkerIsThere) {
  bench.step(WorkerGone{"w"});
  bench.fleet_is_back();
  bench.tick(CoreOptions{}.worker_grace_ms + 1);
  ask("c", 1);
  bench.miss(tuned());
  found_tier0();
  expect_tier0(bench.one<Answer>());
}

TEST_F(CoreTier0, AProgramThatCannotBeTunedIsAnsweredWithTier0AndNotTriedAgain) {
  start();
  bench.step(PlanFinished{tuned(), fail(Code::kUnsupported, "no template covers it"), {}});
  found_tier0();
  expect_tier0(bench.one<Answer>());
  ask("c", 2);
  found_tier0();
  expect_tier0(bench.one<Answer>());
  EXPECT_TRUE(bench.none<StartPlan>());
}

TEST_F(CoreTier0, ABadGraphIsBlamedOnItsSenderOnce) {
  start();
  bench.miss(tier0());
  bench.step(PlanFinished{tuned(), fail(Code::kInvalidArgument, "not its digest"), {}});
  EXPECT_TRUE(bench.none<Answer>());
  bench.step(PlanFinished{tier0(), fail(Code::kInvalidArgument, "not its digest"), {}});
  EXPECT_EQ(bench.one<Answer>().reply.outcome.error().code, Code::kInvalidArgument);
  EXPECT_EQ(stats().flights_open, 0);
}

}  // namespace
}  // namespace kiln
