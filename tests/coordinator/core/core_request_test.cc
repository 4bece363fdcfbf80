// Requests: look-up, joining, the graph, bounds, failures remembered, who goes away.
#include <algorithm>
#include <set>

#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

TEST(CoreRequest, HitIsAnsweredWithTheManifest) {
  CoreBench bench;
  bench.ask("c", 7);
  EXPECT_EQ(bench.one<LookUpProgram>().key, bench.key());
  bench.step(ProgramLookedUp{bench.key(), "{manifest}"});
  const Answer answer = bench.one<Answer>();
  EXPECT_EQ(answer.client, "c");
  EXPECT_EQ(answer.reply.request, 7u);
  EXPECT_EQ(answer.reply.outcome.value(), CacheOutcome::kHit);
  EXPECT_EQ(answer.reply.program_json, "{manifest}");
  EXPECT_EQ(bench.core().stats(bench.now_ms).hits, 1);
  EXPECT_EQ(bench.core().stats(bench.now_ms).flights_open, 0);
}

TEST(CoreRequest, AHitThatWaitsForTheStoreIsSaidToBeInMemoryOnly) {
  CoreBench bench;
  for (const bool is_only_here : {true, false}) {
    bench.ask("c", is_only_here ? 1 : 2);
    ProgramLookedUp found{bench.key(), "{manifest}"};
    found.memory_only = is_only_here;
    bench.step(found);
    EXPECT_EQ(bench.one<Answer>().reply.memory_only, is_only_here);
  }
}

TEST(CoreRequest, EveryoneWhoAsksDuringTheLookUpGetsTheHit) {
  CoreBench bench;
  for (const char* client : {"a", "b", "c"}) bench.ask(client, 1);
  EXPECT_EQ(bench.take<LookUpProgram>().size(), 1u);
  bench.step(ProgramLookedUp{bench.key(), "{}"});
  EXPECT_EQ(bench.take<Answer>().size(), 3u);
  EXPECT_EQ(bench.core().stats(bench.now_ms).hits, 3);
}

TEST(CoreRequest, MissAsksOneClientForTheGraphAndPlansIt) {
  CoreBench bench;
  bench.report("w");
  const CompileRequest request = bench.ask("a", 1);
  bench.ask("b", 1);
  bench.miss(bench.key());
  const AskForGraph asked = bench.one<AskForGraph>();
  EXPECT_EQ(asked.client, "a");
  bench.upload("a", request, "text");
  const StartPlan plan = bench.one<StartPlan>();
  EXPECT_EQ(plan.key, bench.key());
  EXPECT_EQ(plan.graph_text, "text");
  EXPECT_TRUE(bench.none<Answer>());
}

TEST(CoreRequest, GraphThatCameWithTheRequestIsNotAskedFor) {
  CoreBench bench;
  bench.report("w");
  CompileRequest request;
  request.request = 1;
  request.target = cpu_target();
  request.graph_text = "text";
  bench.step(RequestReceived{"a", request});
  const Digest key = bench.one<LookUpProgram>().key;
  bench.miss(key);
  EXPECT_TRUE(bench.none<AskForGraph>());
  EXPECT_EQ(bench.one<StartPlan>().graph_text, "text");
}

TEST(CoreRequest, AnotherWaitingClientIsAskedWhenTheFirstGoesAway) {
  CoreBench bench;
  bench.report("w");
  bench.ask("a", 1);
  bench.ask("b", 4);
  bench.miss(bench.key());
  EXPECT_EQ(bench.one<AskForGraph>().client, "a");
  bench.step(ClientGone{"a"});
  const AskForGraph asked = bench.one<AskForGraph>();
  EXPECT_EQ(asked.client, "b");
  EXPECT_EQ(asked.request, 4u);
}

TEST(CoreRequest, AnotherWaitingClientIsAskedWhenTheFirstDoesNotAnswer) {
  CoreOptions options;
  options.worker_timeout_ms = 100'000;
  CoreBench bench(options);
  bench.report("w");
  bench.ask("a", 1);
  bench.ask("b", 1);
  bench.miss(bench.key());
  EXPECT_EQ(bench.one<AskForGraph>().client, "a");
  bench.tick(4'999);
  EXPECT_TRUE(bench.none<AskForGraph>());
  bench.tick(1);
  EXPECT_EQ(bench.one<AskForGraph>().client, "b");
  bench.tick(5'000);
  EXPECT_EQ(bench.one<AskForGraph>().client, "a");
}

TEST(CoreRequest, ClientThatNeverSendsTheGraphIsAnsweredInTheEnd) {
  CoreBench bench;
  bench.report("w");
  bench.ask("a", 1);
  bench.miss(bench.key());
  for (int asked = 0; asked < 3; ++asked) {
    EXPECT_EQ(bench.take<AskForGraph>().size(), 1u);
    EXPECT_TRUE(bench.none<Answer>());
    bench.tick(5'000);
  }
  EXPECT_EQ(bench.one<Answer>().reply.outcome.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(bench.core().stats(bench.now_ms).flights_open, 0);
}

TEST(CoreRequest, RepeatedRequestIsAskedForTheGraphAgainAndAnsweredOnce) {
  CoreBench bench;
  bench.report("w");
  const CompileRequest request = bench.ask("a", 1);
  bench.step(RequestReceived{"a", request});
  EXPECT_EQ(bench.take<LookUpProgram>().size(), 1u);
  bench.miss(bench.key());
  bench.take<AskForGraph>();
  bench.step(RequestReceived{"a", request});
  EXPECT_EQ(bench.take<AskForGraph>().size(), 1u);
  bench.upload("a", request);
  bench.upload("a", request);
  EXPECT_EQ(bench.take<StartPlan>().size(), 1u);
  bench.plan({});
  bench.store_all();
  EXPECT_EQ(bench.take<Answer>().size(), 1u);
}

TEST(CoreRequest, GraphThatIsNotItsDigestBlamesWhoSentItAndAsksTheNext) {
  CoreBench bench;
  bench.report("w");
  const CompileRequest bad = bench.ask("a", 1);
  const CompileRequest good = bench.ask("b", 1);
  bench.miss(bench.key());
  bench.upload("a", bad, "garbage");
  bench.take<AskForGraph>();
  bench.step(PlanFinished{bench.key(), fail(Code::kInvalidArgument, "not its digest"), {}});
  const Answer answer = bench.one<Answer>();
  EXPECT_EQ(answer.client, "a");
  EXPECT_EQ(answer.reply.outcome.error().code, Code::kInvalidArgument);
  EXPECT_EQ(bench.one<AskForGraph>().client, "b");
  bench.take<StartPlan>();
  bench.upload("b", good, "graph");
  EXPECT_EQ(bench.one<StartPlan>().graph_text, "graph");
}

TEST(CoreRequest, UnsupportedProgramIsRememberedForABoundedTime) {
  CoreOptions options;
  options.worker_timeout_ms = 10'000'000;
  CoreBench bench(options);
  bench.report("w");
  const CompileRequest request = bench.ask("a", 1);
  bench.ask("b", 1);
  bench.miss(bench.key());
  bench.upload("a", request);
  bench.step(PlanFinished{bench.key(), fail(Code::kUnsupported, "aten.fft_rfft"), {}});
  EXPECT_EQ(bench.take<Answer>().size(), 2u);
  bench.take<LookUpProgram>();
  bench.ask("c", 1);
  EXPECT_EQ(bench.one<Answer>().reply.outcome.error().message, "aten.fft_rfft");
  EXPECT_TRUE(bench.none<LookUpProgram>());
  bench.tick(options.failure_memory_ms);
  bench.ask("c", 2);
  EXPECT_TRUE(bench.none<Answer>());
  EXPECT_EQ(bench.take<LookUpProgram>().size(), 1u);
}

TEST(CoreRequest, CheckOnlyStartsNothing) {
  CoreBench bench;
  bench.report("w");
  CompileRequest request;
  request.request = 1;
  request.graph = digest_of("g");
  request.target = cpu_target();
  request.mode = Mode::kMaxAutotune;
  request.check_only = true;
  bench.step(RequestReceived{"a", request});
  bench.miss(bench.key());
  EXPECT_EQ(bench.one<Answer>().reply.outcome.error().code, Code::kNotFound);
  EXPECT_TRUE(bench.none<AskForGraph>());
  EXPECT_EQ(bench.core().stats(bench.now_ms).flights_open, 0);
  // Where the store cannot tell, that is no miss; but whoever needs the program has it made.
  CompileRequest unread = request;
  unread.request = 7;
  bench.step(RequestReceived{"a", unread});
  bench.ask("b", 1);
  bench.step(ProgramLookedUp{bench.key(), "", fail(Code::kUnavailable, "the disk hangs")});
  EXPECT_EQ(bench.one<Answer>().reply.outcome.error().code, Code::kUnavailable);
  EXPECT_EQ(bench.one<AskForGraph>().client, "b");
  bench.step(RequestCancelled{"b", 1});
  // While it is being tuned for somebody else it is still not in the cache.
  bench.start({planned_kernel("k", 2)});
  request.request = 2;
  bench.step(RequestReceived{"a", request});
  EXPECT_EQ(bench.one<Answer>().reply.outcome.error().code, Code::kNotFound);
}

TEST(CoreRequest, BeyondTheBoundRequestsAreOverloaded) {
  CoreOptions options;
  options.max_open_requests = 3;
  options.max_open_requests_a_client = 2;
  CoreBench bench(options);
  bench.ask("a", 1, "g1");
  bench.ask("a", 2, "g2");
  bench.ask("a", 3, "g3");  // more than its share
  Answer answer = bench.one<Answer>();
  EXPECT_EQ(answer.reply.request, 3u);
  EXPECT_EQ(answer.reply.outcome.error().code, Code::kOverloaded);
  EXPECT_EQ(answer.reply.outcome.error().retry_after_ms, options.retry_after_ms);
  bench.ask("b", 1, "g1");
  EXPECT_TRUE(bench.none<Answer>());
  bench.ask("c", 1, "g1");
  EXPECT_EQ(bench.one<Answer>().client, "c");
  // An answer makes room.
  bench.step(ProgramLookedUp{bench.key("g1"), "{}"});
  EXPECT_EQ(bench.take<Answer>().size(), 2u);
  bench.ask("c", 2, "g1");
  EXPECT_TRUE(bench.none<Answer>());
}

TEST(CoreRequest, TargetThatNoWorkerHasFailsAtOnceAndSaysWhichThereAre) {
  CoreBench bench;
  bench.fleet_is_back();
  WorkerReport report = bench.report_of("gpu");
  report.target.backend = Backend::kCuda;
  report.target.isa = "sm_90a";
  bench.step(ReportReceived{"gpu", report});
  bench.ask("a", 1);
  bench.miss(bench.key());
  const Answer answer = bench.one<Answer>();
  EXPECT_EQ(answer.reply.outcome.error().code, Code::kUnavailable);
  EXPECT_NE(answer.reply.outcome.error().message.find("cuda:sm_90a"), std::string::npos);
  EXPECT_TRUE(bench.none<AskForGraph>());
}

// After a restart the workers of the earlier incarnation are still on their way.
TEST(CoreRequest, TargetThatNoWorkerHasReportedYetIsWaitedForWhileTheCoordinatorIsYoung) {
  CoreBench bench;
  bench.step(Tick{});
  bench.start({planned_kernel("k", 1)});
  EXPECT_TRUE(bench.none<Answer>());
  bench.tick(2'000);
  EXPECT_TRUE(bench.none<Answer>());
  EXPECT_FALSE(bench.none<SendProgress>());
  bench.report("w");
  const Job job = bench.job_of("w");
  ASSERT_EQ(indices(job), std::vector{0});
  bench.report("w", {}, {ok_result(job, 0, 10)});
  bench.store_all();
  EXPECT_EQ(bench.one<Answer>().reply.outcome.value(), CacheOutcome::kTuned);
}

TEST(CoreRequest, TargetThatNoWorkerHasFailsOnceTheFleetHadTimeToComeBack) {
  const CoreOptions options;
  CoreBench bench(options);
  bench.step(Tick{});
  bench.start({planned_kernel("k", 1)});
  bench.tick(options.fleet_returns_ms - 1);
  EXPECT_TRUE(bench.none<Answer>());
  bench.tick(1);
  const Error error = bench.one<Answer>().reply.outcome.error();
  EXPECT_EQ(error.code, Code::kUnavailable);
  EXPECT_NE(error.message.find("workers are connected for: none"), std::string::npos);
}

TEST(CoreRequest, TargetWhoseWorkersWentAwayIsNotWaitedForHoweverYoungTheCoordinator) {
  CoreBench bench;
  bench.report("w");
  bench.step(WorkerGone{"w"});
  bench.ask("a", 1);
  bench.miss(bench.key());
  EXPECT_EQ(bench.one<Answer>().reply.outcome.error().code, Code::kUnavailable);
}

// Programs that are looked up and planned while the queue still has room.
TEST(CoreRequest, ABurstOfProgramsKeepsToTheBoundOfCandidates) {
  CoreOptions options;
  options.max_candidates_queued = 3;
  CoreBench bench(options);
  bench.report("w");
  std::vector<CompileRequest> asked;
  for (const char* graph : {"g1", "g2", "g3"}) {
    asked.push_back(bench.ask(graph, 1, graph));
    bench.miss(bench.key(graph));
  }
  bench.upload("g1", asked[0]);
  bench.upload("g2", asked[1]);
  EXPECT_EQ(bench.take<StartPlan>().size(), 2u);
  bench.plan({planned_kernel("k1", 10)}, Mode::kMaxAutotune, "g1");
  const int64_t queued = bench.core().stats(bench.now_ms).candidates_queued;
  ASSERT_GE(queued, options.max_candidates_queued);
  bench.plan({planned_kernel("k2", 10)}, Mode::kMaxAutotune, "g2");
  bench.upload("g3", asked[2]);
  EXPECT_TRUE(bench.none<StartPlan>());
  for (const Answer& answer : bench.take<Answer>()) {
    EXPECT_NE(answer.client, "g1");
    EXPECT_EQ(answer.reply.outcome.error().code, Code::kOverloaded);
    EXPECT_EQ(answer.reply.outcome.error().retry_after_ms, options.retry_after_ms);
  }
  EXPECT_EQ(bench.core().stats(bench.now_ms).candidates_queued, queued);
  EXPECT_EQ(bench.core().stats(bench.now_ms).flights_open, 1);
  EXPECT_EQ(bench.core().stats(bench.now_ms).overloaded, 2);
}

TEST(CoreRequest, AProgramWhoseKernelsAreCachedIsAnsweredHoweverManyCandidatesWait) {
  CoreOptions options;
  options.max_candidates_queued = 3;
  CoreBench bench(options);
  bench.report("w");
  const CompileRequest request = bench.ask("c", 2, "cached");
  bench.miss(bench.key("cached"));
  bench.upload("c", request);
  bench.start({planned_kernel("k", 10)}, Mode::kMaxAutotune, "g", "d");
  PlannedKernel kernel = planned_kernel("known", 1);
  kernel.cached = ProgramKernel{};
  kernel.cached->key = kernel.key;
  bench.plan({kernel}, Mode::kMaxAutotune, "cached");
  bench.store_all();
  const Answer answer = bench.one<Answer>();
  EXPECT_EQ(answer.client, "c");
  EXPECT_TRUE(answer.reply.outcome.has_value());
}

TEST(CoreRequest, TargetWithoutAnInstructionSetIsRefused) {
  CoreBench bench;
  bench.report("w");
  CompileRequest request;
  request.target = Target{};
  bench.step(RequestReceived{"a", request});
  bench.miss(bench.one<LookUpProgram>().key);
  EXPECT_EQ(bench.one<Answer>().reply.outcome.error().code, Code::kInvalidArgument);
}

TEST(CoreRequest, TheOneWhoStartedItTunedAndTheOthersJoined) {
  CoreBench bench;
  bench.report("w");
  const CompileRequest request = bench.ask("z", 1);
  bench.ask("a", 1);
  bench.miss(bench.key());
  bench.ask("b", 1);
  bench.upload("z", request);
  bench.plan({});
  bench.store_all();
  for (const Answer& answer : bench.take<Answer>())
    EXPECT_EQ(answer.reply.outcome.value(),
              answer.client == "z" ? CacheOutcome::kTuned : CacheOutcome::kJoined);
  const Stats stats = bench.core().stats(bench.now_ms);
  EXPECT_EQ(stats.misses, 1);
  EXPECT_EQ(stats.joined, 2);
}

TEST(CoreRequest, CancelledRequestIsNotAnsweredAndItsWorkEnds) {
  CoreBench bench;
  bench.report("w");
  bench.start({planned_kernel("k", 4)});
  const Job job = bench.job_of("w");
  ASSERT_NE(job.lease, 0u);
  bench.step(RequestCancelled{"c", 1});
  const SendOrders orders = bench.one<SendOrders>();
  EXPECT_TRUE(orders.orders.leases.empty());
  EXPECT_EQ(bench.core().stats(bench.now_ms).flights_open, 0);
  bench.report("w", {}, {ok_result(job, 0, 10)});
  EXPECT_TRUE(bench.none<StoreRecords>());
  EXPECT_TRUE(bench.none<Answer>());
}

TEST(CoreRequest, TaskGoesOnForTheClientsThatStay) {
  CoreBench bench;
  bench.report("w");
  bench.start({planned_kernel("k", 1)});
  bench.ask("d", 1);
  bench.step(ClientGone{"c"});
  const Job job = bench.job_of("w");
  bench.report("w", {}, {ok_result(job, 0, 10)});
  bench.store_all();
  const Answer answer = bench.one<Answer>();
  EXPECT_EQ(answer.client, "d");
  EXPECT_EQ(answer.reply.outcome.value(), CacheOutcome::kJoined);
}

TEST(CoreRequest, PlanThatNobodyWaitsForAnyMoreServesWhoComesMeanwhile) {
  CoreBench bench;
  bench.report("w");
  const CompileRequest request = bench.ask("a", 1);
  bench.miss(bench.key());
  bench.upload("a", request);
  EXPECT_EQ(bench.take<StartPlan>().size(), 1u);
  bench.step(ClientGone{"a"});
  bench.ask("b", 1);
  bench.plan({});
  bench.store_all();
  EXPECT_EQ(bench.one<Answer>().client, "b");
  EXPECT_TRUE(bench.none<StartPlan>());
}

TEST(CoreRequest, ProgressComesAtMostOncePerInterval) {
  CoreBench bench;
  bench.report("w");
  bench.start({planned_kernel("k", 5), planned_kernel("l", 1)});
  bench.tick(200);
  const Progress progress = bench.one<SendProgress>().progress;
  EXPECT_EQ(progress.request, 1u);
  EXPECT_EQ(progress.kernels, 2);
  EXPECT_EQ(progress.kernels_done, 0);
  EXPECT_EQ(progress.candidates, 6);
  EXPECT_EQ(progress.candidates_done, 0);
  EXPECT_DOUBLE_EQ(progress.elapsed_s, 0.2);
  bench.tick(199);
  EXPECT_TRUE(bench.none<SendProgress>());
  bench.tick(1);
  EXPECT_EQ(bench.take<SendProgress>().size(), 1u);
}

TEST(CoreRequest, ProgressOfMoreProgramsThanATickHasRoomForComesInTurn) {
  CoreBench bench;
  bench.report("w");
  constexpr int kPrograms = 300;
  for (int i = 0; i < kPrograms; ++i)
    bench.start({planned_kernel(std::to_string(i), 1)}, Mode::kMaxAutotune, std::to_string(i), "c",
                static_cast<uint64_t>(i) + 1);
  std::set<uint64_t> heard;
  size_t most = 0, all = 0;
  for (int i = 0; i < 3; ++i) {
    bench.tick(i == 0 ? 200 : 1);
    const auto progress = bench.take<SendProgress>();
    most = std::max(most, progress.size());
    all += progress.size();
    for (const SendProgress& one : progress) heard.insert(one.progress.request);
  }
  EXPECT_LE(most, 128u);
  EXPECT_EQ(all, kPrograms);  // nobody twice
  EXPECT_EQ(heard.size(), kPrograms);
}

TEST(CoreRequest, ProgressOfAProgramBegunAtTheVeryStartComesToo) {
  CoreBench bench;
  bench.now_ms = 10;
  bench.report("w");
  bench.start({planned_kernel("k", 5)});
  bench.tick(50);
  EXPECT_TRUE(bench.none<SendProgress>());
  bench.tick(150);
  EXPECT_EQ(bench.take<SendProgress>().size(), 1u);
}

TEST(CoreRequest, EventsForNothingKnownAreIgnored) {
  CoreBench bench;
  bench.step(ClientGone{"x"});
  bench.step(RequestCancelled{"x", 1});
  bench.step(ProgramLookedUp{digest_of("?"), "{}"});
  bench.step(PlanFinished{digest_of("?"), Program{}, {}});
  bench.step(WorkerGone{"x"});
  bench.step(KernelStored{digest_of("?"), {}});
  bench.step(ProgramStored{digest_of("?"), {}});
  bench.step(RecordsStored{"x", {{1, 1}}});
  bench.step(Tick{});
  EXPECT_TRUE(bench.done.empty());
}

}  // namespace
}  // namespace kiln
