// `default` programs that are answered as soon as they are built: who takes one, what is verified
// behind the answer, and what becomes of one that is found wrong.
#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

class CoreEarly : public ::testing::Test {
 protected:
  explicit CoreEarly(CoreOptions options = {}) : bench(std::move(options)) {}

  void report(const WorkerId& worker, std::vector<CandidateResult> results = {},
              const std::string& owner = {}, Standing standing = {}) {
    WorkerReport report = bench.report_of(worker, {}, std::move(results));
    report.builds = true;
    report.compilers = 4;
    bench.step(ReportReceived{worker, std::move(report), nullptr, owner, standing});
  }
  CompileRequest ask(const ClientId& client, bool early = true, bool check = false,
                     const std::string& graph = "g", bool strict = false) {
    CompileRequest request;
    request.request = ++requests;
    request.graph = digest_of(graph);
    request.target = cpu_target();
    request.mode = Mode::kDefault;
    request.early = early;
    request.check_only = check;
    request.strict = strict;
    bench.step(RequestReceived{client, request});
    return request;
  }
  void start(std::vector<PlannedKernel> kernels, bool early = true, const std::string& graph = "g",
             int64_t serial = 7) {
    const CompileRequest request = ask("c", early, false, graph);
    bench.miss(bench.key(graph, Mode::kDefault));
    bench.upload("c", request);
    plan(std::move(kernels), graph, serial);
  }
  void plan(std::vector<PlannedKernel> kernels, const std::string& graph = "g",
            int64_t serial = 7) {
    Program program;
    program.key = bench.key(graph, Mode::kDefault);
    program.graph = digest_of(graph);
    program.target = cpu_target();
    program.serial = serial;
    bench.step(PlanFinished{program.key, std::move(program), std::move(kernels)});
  }
  // The jobs of the last orders to each worker that has new ones. Takes all orders.
  std::vector<Job> jobs_of(const WorkerId& worker) {
    std::vector<Job> jobs;
    for (SendOrders& orders : bench.take<SendOrders>())
      if (orders.worker == worker) jobs = std::move(orders.orders.jobs);
    return jobs;
  }
  static CandidateResult verified(const Job& job, int index) {
    CandidateResult result;
    result.lease = job.lease;
    result.epoch = job.epoch;
    result.kernel_key = job.kernel_key;
    result.index = index;
    return result;
  }
  static CandidateResult built(const Job& job, int index) {
    CandidateResult result = ok_result(job, index, 0);
    result.measurement = {};
    return result;
  }
  // The only job of "w", of this kind.
  Job job_of_kind(Job::Kind kind) {
    const std::vector<Job> jobs = jobs_of("w");
    EXPECT_EQ(jobs.size(), 1u);
    if (jobs.size() != 1) return {};
    EXPECT_EQ(jobs.front().kind, kind);
    EXPECT_EQ(jobs.front().candidates.size(), 1u);
    return jobs.front();
  }
  static Program program_in(const Answer& answer) {
    EXPECT_TRUE(answer.reply.outcome.has_value());
    const auto program = program_from_json(answer.reply.program_json);
    EXPECT_TRUE(program.has_value()) << program.error().message;
    return program.value_or(Program{});
  }
  Stats stats() { return bench.core().stats(bench.now_ms); }

  void SetUp() override {
    report("w");
    bench.take<SendOrders>();
  }
  CoreBench bench;
  uint64_t requests = 0;
};

TEST_F(CoreEarly, AProgramIsAnsweredWhenItIsBuiltAndStoredWhenItIsVerified) {
  start({planned_kernel("k", 3)});
  const Job build = job_of_kind(Job::Kind::kBuild);
  EXPECT_EQ(indices(build), std::vector{0});
  report("w", {built(build, 0)});
  const auto answer = bench.one<Answer>();
  const Program early = program_in(answer);
  EXPECT_TRUE(answer.is_early);
  EXPECT_EQ(answer.reply.outcome.value(), CacheOutcome::kTuned);
  EXPECT_FALSE(is_verified(early));
  EXPECT_EQ(early.serial, 7);
  EXPECT_EQ(bench.one<ShareBinary>().digest, early.kernels.at(0).blob);
  bench.store_all();
  EXPECT_TRUE(bench.programs.empty());
  EXPECT_TRUE(bench.kernels.empty());

  const Job verify = job_of_kind(Job::Kind::kCompile);
  EXPECT_EQ(verify.candidates[0].binary, "binary 0");
  report("w", {verified(verify, 0)});
  bench.store_all();
  ASSERT_EQ(bench.programs.size(), 1u);
  EXPECT_TRUE(is_verified(bench.programs[0]));
  EXPECT_EQ(bench.programs[0].kernels.at(0).blob, early.kernels.at(0).blob);
  EXPECT_EQ(bench.programs[0].kernels.at(0).provenance.measured.worker, "w");
  EXPECT_TRUE(bench.none<Answer>()) << "everybody was answered";
  EXPECT_EQ(stats().flights_open, 0);
  EXPECT_EQ(stats().answered_early, 1);
  EXPECT_EQ(stats().withdrawn, 0);
}

TEST_F(CoreEarly, WhoWantsItVerifiedWaits) {
  start({planned_kernel("k", 1)}, false);
  report("w", {built(job_of_kind(Job::Kind::kBuild), 0)});
  EXPECT_TRUE(bench.none<Answer>());
  ask("taker");
  EXPECT_EQ(bench.one<Answer>().client, "taker");
  report("w", {verified(job_of_kind(Job::Kind::kCompile), 0)});
  bench.store_all();
  const auto answer = bench.one<Answer>();
  EXPECT_EQ(answer.client, "c");
  EXPECT_FALSE(answer.is_early);
  EXPECT_TRUE(is_verified(program_in(answer)));
}

TEST_F(CoreEarly, AUsersOwnKernelIsAnsweredOnceItIsVerified) {
  PlannedKernel own = planned_kernel("k", 1);
  own.family = Family::kCustom;
  start({std::move(own)});
  report("w", {built(job_of_kind(Job::Kind::kBuild), 0)});
  EXPECT_TRUE(bench.none<Answer>());
  report("w", {verified(job_of_kind(Job::Kind::kCompile), 0)});
  bench.store_all();
  EXPECT_FALSE(bench.one<Answer>().is_early);
}

TEST_F(CoreEarly, ACheckIsAMissUntilItIsStoredAndStrictTakesIt) {
  start({planned_kernel("k", 1)});
  report("w", {built(job_of_kind(Job::Kind::kBuild), 0)});
  bench.take<Answer>();
  ask("check", true, true);
  EXPECT_EQ(bench.one<Answer>().reply.outcome.error().code, Code::kNotFound);
  ask("strict", true, false, "g", true);
  EXPECT_FALSE(is_verified(program_in(bench.one<Answer>())));
}

TEST_F(CoreEarly, FortyClientsCostOneBuildOfEachCandidate) {
  start({planned_kernel("a", 3), planned_kernel("b", 3)});
  for (int i = 0; i < 39; ++i) ask("client " + std::to_string(i));
  const auto builds = jobs_of("w");
  ASSERT_EQ(builds.size(), 2u);
  report("w", {built(builds[0], 0)});
  EXPECT_TRUE(bench.none<Answer>()) << "a kernel of it is not built";
  report("w", {built(builds[1], 0)});
  EXPECT_EQ(bench.take<Answer>().size(), 40u);
  ask("late");
  EXPECT_EQ(bench.one<Answer>().reply.outcome.value(), CacheOutcome::kJoined);
  for (const Job& job : jobs_of("w")) EXPECT_EQ(job.kind, Job::Kind::kCompile);
  EXPECT_EQ(stats().candidates_compiled, 2);
}

TEST_F(CoreEarly, AKernelThatAnotherProgramBuiltIsNotBuiltAgain) {
  start({planned_kernel("k", 1)});
  const Job build = job_of_kind(Job::Kind::kBuild);
  report("w", {built(build, 0)});
  bench.take<Answer>();
  job_of_kind(Job::Kind::kCompile);
  start({planned_kernel("k", 1)}, true, "other");
  EXPECT_TRUE(bench.one<Answer>().is_early);
  for (const Job& job : jobs_of("w")) EXPECT_NE(job.kind, Job::Kind::kBuild);
}

TEST_F(CoreEarly, OneFoundWrongIsWithdrawnAndTheNextRequestGetsTheNextChoice) {
  start({planned_kernel("k", 2)});
  report("w", {built(job_of_kind(Job::Kind::kBuild), 0)});
  const Program wrong = program_in(bench.one<Answer>());
  const Job verify = job_of_kind(Job::Kind::kCompile);
  ask("waits", false);
  report("w", {bad_result(verify, 0, Verdict::kWrongResult)});
  const auto withdraw = bench.one<WithdrawKernel>();
  EXPECT_EQ(withdraw.kernel, wrong.kernels.at(0).key);
  EXPECT_EQ(stats().withdrawn, 1);
  ask("d");
  EXPECT_TRUE(bench.none<Answer>()) << "the wrong one is not answered again";

  report("w", {built(job_of_kind(Job::Kind::kBuild), 1)});
  EXPECT_TRUE(bench.none<Answer>()) << "its serial is revoked";
  bench.step(KernelWithdrawn{withdraw.ticket, 9});
  const auto answer = bench.one<Answer>();
  EXPECT_EQ(answer.client, "d");
  const Program next = program_in(answer);
  EXPECT_NE(next.kernels.at(0).blob, wrong.kernels.at(0).blob);
  EXPECT_EQ(next.serial, 9);
  report("w", {verified(job_of_kind(Job::Kind::kCompile), 1)});
  bench.store_all();
  ASSERT_EQ(bench.programs.size(), 1u);
  EXPECT_EQ(bench.programs[0].serial, 9);
  EXPECT_EQ(bench.one<Answer>().client, "waits");
}

TEST_F(CoreEarly, AProgramThatIsVerifiedBeforeItsWithdrawalIsDurableWaitsForIt) {
  start({planned_kernel("k", 2)});
  report("w", {built(job_of_kind(Job::Kind::kBuild), 0)});
  const Job verify = job_of_kind(Job::Kind::kCompile);
  ask("waits", false);
  report("w", {bad_result(verify, 0, Verdict::kWrongResult)});
  const auto withdraw = bench.one<WithdrawKernel>();
  report("w", {built(job_of_kind(Job::Kind::kBuild), 1)});
  report("w", {verified(job_of_kind(Job::Kind::kCompile), 1)});
  bench.store_all();
  EXPECT_TRUE(bench.programs.empty());
  bench.step(KernelWithdrawn{withdraw.ticket, 9});
  bench.store_all();
  ASSERT_EQ(bench.programs.size(), 1u);
  EXPECT_EQ(bench.programs[0].serial, 9);
}

TEST_F(CoreEarly, WhatNobodyWasAnsweredWithIsNotWithdrawn) {
  start({planned_kernel("k", 2)}, false);
  report("w", {built(job_of_kind(Job::Kind::kBuild), 0)});
  report("w", {bad_result(job_of_kind(Job::Kind::kCompile), 0, Verdict::kWrongResult)});
  EXPECT_TRUE(bench.none<WithdrawKernel>());
  EXPECT_EQ(indices(job_of_kind(Job::Kind::kBuild)), std::vector{1});
}

TEST_F(CoreEarly, VerifyingGoesOnThoughNobodyWaits) {
  start({planned_kernel("k", 1)});
  report("w", {built(job_of_kind(Job::Kind::kBuild), 0)});
  bench.take<Answer>();
  bench.step(ClientGone{"c"});
  EXPECT_EQ(stats().flights_open, 1);
  report("w", {verified(job_of_kind(Job::Kind::kCompile), 0)});
  bench.store_all();
  EXPECT_EQ(bench.programs.size(), 1u);
}

// Verifying takes the worker's slots, and building does not.
TEST_F(CoreEarly, AProgramIsBuiltWhileAnotherIsVerified) {
  start({planned_kernel("a", 1)});
  report("w", {built(job_of_kind(Job::Kind::kBuild), 0)});
  bench.take<Answer>();
  const Job verify = job_of_kind(Job::Kind::kCompile);
  WorkerReport at_work = bench.report_of("w", {{verify.lease, verify.epoch, 0}});
  at_work.builds = true;
  at_work.compilers = 4;
  ASSERT_EQ(at_work.slots, 1);
  bench.step(ReportReceived{"w", at_work});
  bench.take<SendOrders>();
  start({planned_kernel("b", 1)}, true, "other");
  const auto jobs = jobs_of("w");
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0].kind, Job::Kind::kBuild);
}

TEST_F(CoreEarly, AWorkerThatDoesNotBuildDoesBothAtOnce) {
  bench.step(WorkerGone{"w"});
  bench.report("old");
  bench.take<SendOrders>();
  start({planned_kernel("k", 1)});
  const Job job = bench.job_of("old");
  EXPECT_EQ(job.kind, Job::Kind::kCompile);
  EXPECT_TRUE(job.candidates.at(0).binary.empty());
  bench.report("old", {}, {built(job, 0)});
  bench.store_all();
  EXPECT_FALSE(bench.one<Answer>().is_early);
}

TEST_F(CoreEarly, WithoutItsLastBuilderAKernelIsBuiltAndVerifiedByWhoeverIsThere) {
  start({planned_kernel("k", 1)});
  report("w", {built(job_of_kind(Job::Kind::kBuild), 0)});
  bench.take<Answer>();
  bench.report("old");
  bench.take<SendOrders>();
  bench.step(WorkerGone{"w"});
  bench.tick(100);
  const Job job = bench.job_of("old");
  EXPECT_EQ(job.kind, Job::Kind::kCompile);
  EXPECT_TRUE(job.candidates.at(0).binary.empty());
  bench.report("old", {}, {built(job, 0)});
  bench.store_all();
  EXPECT_EQ(bench.programs.size(), 1u);
  EXPECT_TRUE(bench.none<WithdrawKernel>()) << "nobody found it wrong";
}

TEST_F(CoreEarly, AWorkerThatBuildsWhatItWasGivenIsNotBelieved) {
  start({planned_kernel("k", 1)});
  report("w", {built(job_of_kind(Job::Kind::kBuild), 0)});
  bench.take<Answer>();
  report("w", {built(job_of_kind(Job::Kind::kCompile), 0)});
  bench.store_all();
  EXPECT_TRUE(bench.programs.empty());
}

// ---- whose word is enough ----

TEST_F(CoreEarly, WhereAnotherOwnerCanConfirmItTheBuildersWordIsNotEnough) {
  bench.step(WorkerGone{"w"});
  report("a", {}, "owner a");
  report("b", {}, "owner b");
  bench.take<SendOrders>();
  start({planned_kernel("k", 1)});
  for (SendOrders& orders : bench.take<SendOrders>())
    for (const Job& job : orders.orders.jobs)
      report(orders.worker, {built(job, 0)}, "owner " + orders.worker);
  EXPECT_TRUE(bench.none<Answer>());
}

TEST_F(CoreEarly, OfAKeyThatIsTrustedAloneItIs) {
  const Standing alone{true, true};
  report("w", {}, "owner a", alone);
  report("b", {}, "owner b");
  bench.take<SendOrders>();
  start({planned_kernel("k", 1)});
  for (SendOrders& orders : bench.take<SendOrders>())
    for (const Job& job : orders.orders.jobs)
      report(orders.worker, {built(job, 0)}, orders.worker == "w" ? "owner a" : "owner b",
             orders.worker == "w" ? alone : Standing{});
  const auto answers = bench.take<Answer>();
  for (const Answer& answer : answers)
    EXPECT_EQ(program_in(answer).kernels.at(0).provenance.built.worker, "w");
}

TEST_F(CoreEarly, OfAKeyThatMayOnlyScreenItIsNot) {
  const Standing screens{false, false};
  report("w", {}, "owner a", screens);
  bench.take<SendOrders>();
  start({planned_kernel("k", 1)});
  report("w", {built(job_of_kind(Job::Kind::kBuild), 0)}, "owner a", screens);
  EXPECT_TRUE(bench.none<Answer>());
}

TEST_F(CoreEarly, AnotherAudiencesTaskAnswersNobodyElse) {
  RequestReceived mine;
  mine.client = "c";
  mine.user = "u";
  mine.request.request = 1;
  mine.request.graph = digest_of("g");
  mine.request.target = cpu_target();
  mine.request.early = true;
  mine.audience = Audience::of_user("u");
  bench.step(mine);
  const Digest task = task_key(bench.key("g", Mode::kDefault), mine.audience);
  bench.step(ProgramLookedUp{task, ""});
  mine.request.graph_text = "graph";
  bench.step(mine);
  Program program;
  program.key = bench.key("g", Mode::kDefault);
  program.graph = digest_of("g");
  program.target = cpu_target();
  bench.step(PlanFinished{task, std::move(program), {planned_kernel("k", 1)}});
  report("w", {built(job_of_kind(Job::Kind::kBuild), 0)});
  EXPECT_EQ(bench.one<Answer>().client, "c");
  ask("stranger");
  EXPECT_TRUE(bench.none<Answer>());
  bench.take<AskForGraph>();
  bench.miss(bench.key("g", Mode::kDefault));
  EXPECT_EQ(bench.one<AskForGraph>().client, "stranger") << "it shows that it has the graph";
}

// ---- bounds ----

class CoreEarlyBounds : public CoreEarly {
 protected:
  static CoreOptions small() {
    CoreOptions options;
    options.max_unverified_bytes = 1;
    return options;
  }
  CoreEarlyBounds() : CoreEarly(small()) {}
};

TEST_F(CoreEarlyBounds, NothingIsBuiltAheadBeyondTheBound) {
  start({planned_kernel("a", 1)});
  report("w", {built(job_of_kind(Job::Kind::kBuild), 0)});
  bench.take<Answer>();
  const Job verify = job_of_kind(Job::Kind::kCompile);
  start({planned_kernel("b", 1)}, true, "other");
  EXPECT_TRUE(jobs_of("w").empty());
  report("w", {verified(verify, 0)});
  EXPECT_EQ(job_of_kind(Job::Kind::kBuild).kernel_key, digest_of("kernel b"));
}

}  // namespace
}  // namespace kiln
