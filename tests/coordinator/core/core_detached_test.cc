// Programs that are tuned without a client: what is stored when, and what comes of it.
#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

CompileRequest detaching(uint64_t number, const std::string& graph) {
  CompileRequest request;
  request.request = number;
  request.graph = digest_of(graph);
  request.target = cpu_target();
  request.mode = Mode::kMaxAutotune;
  request.detach = true;
  return request;
}

class CoreDetached : public ::testing::Test {
 protected:
  CompileRequest ask_detached(const ClientId& client, uint64_t number,
                              const std::string& graph = "g") {
    CompileRequest request = detaching(number, graph);
    bench.step(RequestReceived{client, request});
    return request;
  }
  // As far as StoreDetached.
  StoreDetached plan_detached(const std::string& graph = "g", const ClientId& client = "c") {
    const CompileRequest request = ask_detached(client, 1, graph);
    bench.miss(bench.key(graph));
    bench.upload(client, request, "text of " + graph);
    EXPECT_TRUE(bench.none<StoreDetached>()) << "not before the plan shows that the graph is good";
    bench.plan({planned_kernel("k of " + graph, 1)}, Mode::kMaxAutotune, graph);
    return bench.one<StoreDetached>();
  }
  Answer queue(const std::string& graph = "g", const ClientId& client = "c") {
    const StoreDetached store = plan_detached(graph, client);
    bench.step(DetachedStored{store.key, store.task, {}});
    return bench.one<Answer>();
  }
  void tune() {
    const Job job = bench.job_of("w");
    ASSERT_EQ(job.candidates.size(), 1u);
    bench.report("w", {}, {ok_result(job, 0, 10)});
    bench.store_all();
  }
  Stats stats() { return bench.core().stats(bench.now_ms); }

  CoreBench bench;
  void SetUp() override {
    bench.report("w");
    bench.take<SendOrders>();
  }
};

TEST_F(CoreDetached, QueuedIsAnsweredOnceTheGraphIsDurable) {
  const StoreDetached store = plan_detached();
  EXPECT_EQ(store.key, bench.key());
  EXPECT_EQ(store.task.graph, digest_of("g"));
  EXPECT_EQ(store.graph_text, "text of g");
  EXPECT_TRUE(bench.none<Answer>());
  bench.step(DetachedStored{store.key, store.task, {}});
  const Answer answer = bench.one<Answer>();
  EXPECT_EQ(answer.reply.outcome.value(), CacheOutcome::kQueued);
  EXPECT_EQ(stats().detached_running, 1);
}

TEST_F(CoreDetached, ItGoesOnWithoutTheClientAndEndsWhenItsProgramIsStored) {
  queue();
  bench.step(ClientGone{"c"});
  tune();
  ASSERT_EQ(bench.programs.size(), 1u);
  const EndDetached end = bench.one<EndDetached>();
  EXPECT_TRUE(end.outcome.has_value());
  EXPECT_EQ(end.task.graph, digest_of("g"));
  EXPECT_EQ(stats().flights_open, 0);
  EXPECT_EQ(stats().detached_running + stats().detached_queued, 0);
}

TEST_F(CoreDetached, ATaskThatCannotBeStoredIsRefusedAndGivenUp) {
  const StoreDetached store = plan_detached();
  bench.step(DetachedStored{store.key, store.task, fail(Code::kUnavailable, "disk full")});
  const Answer answer = bench.one<Answer>();
  ASSERT_FALSE(answer.reply.outcome.has_value());
  EXPECT_NE(answer.reply.outcome.error().message.find("disk full"), std::string::npos);
  EXPECT_EQ(stats().flights_open, 0);
}

TEST_F(CoreDetached, AskedAgainItIsAnsweredAtOnce) {
  queue();
  ask_detached("d", 7);
  EXPECT_EQ(bench.one<Answer>().reply.outcome.value(), CacheOutcome::kQueued);
  EXPECT_TRUE(bench.none<StoreDetached>());
}

TEST_F(CoreDetached, AskedForWhatOthersWaitForTheirGraphIsStored) {
  bench.start({planned_kernel("k", 1)});
  ask_detached("d", 7);
  const StoreDetached store = bench.one<StoreDetached>();
  EXPECT_EQ(store.graph_text, "graph");
  bench.step(DetachedStored{store.key, store.task, {}});
  const Answer answer = bench.one<Answer>();
  EXPECT_EQ(answer.client, "d");
  EXPECT_EQ(answer.reply.outcome.value(), CacheOutcome::kQueued);
  bench.step(ClientGone{"c"});
  EXPECT_EQ(stats().flights_open, 1) << "the queue wants it still";
}

TEST_F(CoreDetached, ARecoveredTaskIsPlannedFromTheStore) {
  bench.step(DetachedRecovered{{digest_of("g"), cpu_target(), Mode::kMaxAutotune}});
  EXPECT_EQ(stats().detached_queued, 1);
  bench.tick(100);
  EXPECT_EQ(bench.one<LookUpProgram>().key, bench.key());
  bench.miss(bench.key());
  EXPECT_EQ(bench.one<StartPlan>().graph_text, "");
  bench.plan({planned_kernel("k", 1)});
  EXPECT_TRUE(bench.none<StoreDetached>()) << "it is stored";
  tune();
  EXPECT_TRUE(bench.one<EndDetached>().outcome.has_value());
}

TEST_F(CoreDetached, ARecoveredTaskThatIsStoredAlreadyEnds) {
  bench.step(DetachedRecovered{{digest_of("g"), cpu_target(), Mode::kMaxAutotune}});
  bench.tick(100);
  bench.step(ProgramLookedUp{bench.key(), "{}"});
  EXPECT_TRUE(bench.one<EndDetached>().outcome.has_value());
  EXPECT_EQ(stats().flights_open, 0);
}

TEST_F(CoreDetached, ARecoveredTaskWaitsForAWorker) {
  Target other = cpu_target();
  other.isa = "x86-64-v4";
  bench.step(DetachedRecovered{{digest_of("g"), other, Mode::kMaxAutotune}});
  bench.tick(100);
  EXPECT_TRUE(bench.none<LookUpProgram>());
  WorkerReport report = bench.report_of("v4");
  report.target = other;
  bench.step(ReportReceived{"v4", report});
  bench.tick(100);
  EXPECT_EQ(bench.take<LookUpProgram>().size(), 1u);
}

TEST_F(CoreDetached, WhatFailsForGoodIsRememberedWithItsReason) {
  queue();
  const Job job = bench.job_of("w");
  bench.report("w", {}, {bad_result(job, 0, Verdict::kWrongResult)});
  bench.store_all();
  const EndDetached end = bench.one<EndDetached>();
  ASSERT_FALSE(end.outcome.has_value());
  const Stats now = stats();
  ASSERT_EQ(now.detached.size(), 1u);
  EXPECT_EQ(now.detached[0].state, "failed");
  EXPECT_EQ(now.detached[0].program, bench.key());
  EXPECT_EQ(now.detached[0].reason, end.outcome.error().message);
}

TEST_F(CoreDetached, CandidatesThatNeverEndAreAFailureOfItsOwn) {
  queue();
  for (Job job = bench.job_of("w"); job.lease != 0; job = bench.job_of("w"))
    bench.report("w", {}, {bad_result(job, 0, Verdict::kTimedOut)});
  bench.store_all();
  const EndDetached end = bench.one<EndDetached>();
  ASSERT_FALSE(end.outcome.has_value());
  EXPECT_EQ(end.outcome.error().code, Code::kInternal);
  EXPECT_EQ(stats().detached_failed, 1);
}

TEST_F(CoreDetached, AStoreThatFailsPutsItOff) {
  queue();
  bench.take<LookUpProgram>();
  bench.report("w", {}, {ok_result(bench.job_of("w"), 0, 10)});
  for (const auto& a : bench.take<StoreRecords>()) bench.step(RecordsStored{a.worker, a.acks});
  const Digest kernel = bench.one<StoreKernel>().kernel.key;
  bench.step(KernelStored{kernel, fail(Code::kUnavailable, "disk full")});
  EXPECT_TRUE(bench.none<EndDetached>());
  EXPECT_EQ(stats().detached_queued, 1);
  bench.tick(1'000);
  EXPECT_TRUE(bench.none<LookUpProgram>());
  bench.now_ms += 9'000;
  bench.report("w");
  bench.tick(1'000);
  EXPECT_EQ(bench.take<LookUpProgram>().size(), 1u);
}

TEST_F(CoreDetached, ItIsTriedAgainLaterAndLater) {
  bench.step(DetachedRecovered{{digest_of("g"), cpu_target(), Mode::kMaxAutotune}});
  std::vector<int64_t> attempts_ms;
  for (const int64_t end_ms = bench.now_ms + 300'000; bench.now_ms < end_ms;) {
    bench.report("w");
    bench.tick(1'000);
    if (bench.none<LookUpProgram>()) continue;
    attempts_ms.push_back(bench.now_ms);
    bench.miss(bench.key());
    bench.step(PlanFinished{bench.key(), fail(Code::kUnavailable, "the disk is full"), {}});
  }
  EXPECT_TRUE(bench.none<EndDetached>()) << "that is not the program's fault";
  std::vector<int64_t> waits_s;
  for (size_t i = 1; i < attempts_ms.size(); ++i)
    waits_s.push_back((attempts_ms[i] - attempts_ms[i - 1]) / 1'000);
  EXPECT_EQ(waits_s, (std::vector<int64_t>{5, 10, 20, 40, 60, 60, 60}));
}

TEST_F(CoreDetached, TheOldestOfTooManyFailuresIsForgottenNotEnded) {
  const auto recover = [&](int i) {
    const DetachedTask task{digest_of(std::to_string(i)), cpu_target(), Mode::kMaxAutotune};
    bench.step(DetachedRecovered{task, Error{Code::kInternal, "it failed", 0}});
  };
  for (int i = 0; i < 1'000; ++i) recover(i);
  EXPECT_TRUE(bench.none<ForgetDetached>());
  recover(1'000);
  EXPECT_EQ(bench.one<ForgetDetached>().task.graph, digest_of("0"));
  EXPECT_TRUE(bench.none<EndDetached>()) << "it neither was tuned nor failed just now";
  EXPECT_EQ(stats().detached_failed, 1'000);
}

TEST_F(CoreDetached, WhatFailedIsForgottenWhenAnOperatorHasSeenIt) {
  for (const char* graph : {"a", "b"})
    bench.step(DetachedRecovered{{digest_of(graph), cpu_target(), Mode::kMaxAutotune},
                                 Error{Code::kInternal, "it failed", 0}});
  bench.step(DetachedRecovered{{digest_of("c"), cpu_target(), Mode::kMaxAutotune}});
  bench.step(ForgetFailures{});
  EXPECT_EQ(bench.take<ForgetDetached>().size(), 2u);
  EXPECT_EQ(stats().detached_failed, 0);
  EXPECT_EQ(stats().detached_queued, 1) << "it has not failed";
}

TEST_F(CoreDetached, WhatIsAnsweredAndCannotBeStoredIsKeptInMemory) {
  bench.start({planned_kernel("k", 1)});
  bench.report("w", {}, {ok_result(bench.job_of("w"), 0, 10)});
  for (const auto& a : bench.take<StoreRecords>()) bench.step(RecordsStored{a.worker, a.acks});
  const Digest kernel = bench.one<StoreKernel>().kernel.key;
  bench.step(KernelStored{kernel, fail(Code::kUnavailable, "disk full")});
  const CompileReply reply = bench.one<Answer>().reply;
  EXPECT_EQ(reply.program_json, bench.one<KeepProgram>().program_json);
  EXPECT_TRUE(reply.memory_only);
}

// Tuned while the store is away: it could be lost with this machine's disk.
TEST_F(CoreDetached, ATaskWhoseProgramWaitsForTheStoreEndsOnceItIsStored) {
  bench.step(DetachedRecovered{{digest_of("g"), cpu_target(), Mode::kMaxAutotune}});
  bench.tick(100);
  ProgramLookedUp found{bench.one<LookUpProgram>().key, "{manifest}"};
  found.memory_only = true;
  bench.step(found);
  EXPECT_TRUE(bench.none<EndDetached>());
  EXPECT_EQ(stats().flights_open, 0);
  EXPECT_EQ(stats().detached_queued, 1);
  EXPECT_NE(stats().detached.at(0).reason.find("waits on this coordinator's disk"),
            std::string::npos);
  bench.tick(4'000);
  EXPECT_TRUE(bench.none<LookUpProgram>()) << "not all the time";
  bench.report("w");
  bench.tick(4'000);
  found.key = bench.one<LookUpProgram>().key;
  found.memory_only = false;
  bench.step(found);
  EXPECT_TRUE(bench.one<EndDetached>().outcome.has_value());
  EXPECT_EQ(stats().detached_queued, 0);
}

TEST_F(CoreDetached, AGraphThatIsNotItsDigestIsNeverStored) {
  const CompileRequest request = ask_detached("c", 1);
  bench.miss(bench.key());
  bench.upload("c", request, "garbage");
  bench.step(PlanFinished{bench.key(), fail(Code::kInvalidArgument, "another graph"), {}});
  EXPECT_EQ(bench.one<Answer>().reply.outcome.error().code, Code::kInvalidArgument);
  EXPECT_TRUE(bench.none<StoreDetached>());
}

TEST_F(CoreDetached, OnlySoManyRunAtOnce) {
  CoreOptions options;
  options.max_detached_running = 2;
  CoreBench few(options);
  few.report("w");
  for (const char* graph : {"a", "b", "c", "d"})
    few.step(DetachedRecovered{{digest_of(graph), cpu_target(), Mode::kMaxAutotune}});
  few.tick(100);
  EXPECT_EQ(few.take<LookUpProgram>().size(), 2u);
  EXPECT_EQ(few.core().stats(few.now_ms).detached_running, 2);
  few.step(ProgramLookedUp{few.key("a"), "{}"});
  few.tick(100);
  EXPECT_EQ(few.one<LookUpProgram>().key, few.key("c")) << "in the order they came";
}

// A client that asks for one of those that wait, and leaves, takes no place beyond the bound.
TEST_F(CoreDetached, WhatAClientLeftRunsOnlyAsOneOfThoseThatMay) {
  CoreOptions options;
  options.max_detached_running = 1;
  CoreBench few(options);
  few.report("w");
  for (const char* graph : {"a", "b"})
    few.step(DetachedRecovered{{digest_of(graph), cpu_target(), Mode::kMaxAutotune}});
  few.tick(100);
  few.miss(few.key("a"));
  few.plan({planned_kernel("of a", 1)}, Mode::kMaxAutotune, "a");
  few.ask("c", 1, "b");
  few.miss(few.key("b"));
  few.plan({planned_kernel("of b", 1)}, Mode::kMaxAutotune, "b");
  EXPECT_EQ(few.core().stats(few.now_ms).flights_open, 2);
  few.step(RequestCancelled{"c", 1});
  EXPECT_EQ(few.core().stats(few.now_ms).flights_open, 1);
  EXPECT_EQ(few.core().stats(few.now_ms).detached_queued, 1);
  few.step(ClientGone{"c"});
  // With a place left it goes on as it is.
  few.take<LookUpProgram>();
  const Job job = few.job_of("w");
  few.report("w", {}, {ok_result(job, 0, 10)});
  few.store_all();
  few.tick(100);
  EXPECT_EQ(few.one<LookUpProgram>().key, few.key("b"));
}

TEST_F(CoreDetached, WhatAClientLeftGoesOnWhereThereIsAPlace) {
  bench.step(DetachedRecovered{{digest_of("g"), cpu_target(), Mode::kMaxAutotune}});
  bench.ask("c", 1);
  bench.miss(bench.key());
  bench.plan({planned_kernel("k", 1)});
  bench.step(RequestCancelled{"c", 1});
  EXPECT_EQ(stats().flights_open, 1);
  EXPECT_EQ(stats().detached_running, 1);
  tune();
  EXPECT_TRUE(bench.one<EndDetached>().outcome.has_value());
}

// Its graph is on its way to the store while the task fails, and somebody asks again.
class CoreDetachedAgain : public CoreDetached {
 protected:
  StoreDetached fail_while_storing() {
    StoreDetached store = plan_detached();
    bench.step(WorkerGone{"w"});
    bench.tick(0);
    bench.tick(CoreOptions{}.worker_grace_ms);
    EXPECT_EQ(bench.one<Answer>().reply.outcome.error().code, Code::kUnavailable);
    EXPECT_EQ(stats().flights_open, 0);
    bench.report("w");
    bench.take<SendOrders>();
    return store;
  }
};

TEST_F(CoreDetachedAgain, ItIsPlannedFromTheStoreThoughWhoAskedNeverSendsTheGraph) {
  const StoreDetached store = fail_while_storing();
  bench.ask("d", 1);
  bench.miss(bench.key());
  EXPECT_EQ(bench.take<AskForGraph>().size(), 2u);
  bench.take<StartPlan>();
  bench.step(DetachedStored{store.key, store.task, {}});
  EXPECT_EQ(bench.one<StartPlan>().graph_text, "");
  bench.step(ClientGone{"d"});
  bench.plan({planned_kernel("k", 1)});
  tune();
  EXPECT_TRUE(bench.one<EndDetached>().outcome.has_value());
  EXPECT_EQ(stats().detached_running + stats().detached_queued, 0);
}

TEST_F(CoreDetachedAgain, AGraphThatSomebodyElseSendsBadIsNotItsOwn) {
  const StoreDetached store = fail_while_storing();
  const CompileRequest request = bench.ask("d", 1);
  bench.miss(bench.key());
  bench.upload("d", request, "garbage");
  bench.take<StartPlan>();
  bench.step(DetachedStored{store.key, store.task, {}});
  bench.step(PlanFinished{bench.key(), fail(Code::kInvalidArgument, "another graph"), {}});
  EXPECT_EQ(bench.one<Answer>().reply.outcome.error().code, Code::kInvalidArgument);
  EXPECT_TRUE(bench.none<EndDetached>());
  EXPECT_EQ(stats().detached_failed, 0);
  EXPECT_EQ(bench.one<StartPlan>().graph_text, "");
}

// Ends for nothing to do with it: the queue begins it again.
TEST_F(CoreDetachedAgain, WhateverEndsItsTaskItIsBegunAgain) {
  const StoreDetached store = fail_while_storing();
  bench.ask("d", 1);
  bench.step(DetachedStored{store.key, store.task, {}});
  bench.take<LookUpProgram>();
  bench.step(ClientGone{"d"});
  bench.step(WorkerGone{"w"});
  bench.miss(bench.key());
  EXPECT_EQ(stats().flights_open, 0);
  EXPECT_EQ(stats().detached_queued, 1);
  bench.tick(10'000);
  bench.report("w");
  bench.tick(100);
  EXPECT_EQ(bench.one<LookUpProgram>().key, bench.key());
}

TEST_F(CoreDetachedAgain, TheGraphOnItsWayIsNotStoredTwice) {
  const StoreDetached store = fail_while_storing();
  const CompileRequest request = ask_detached("d", 1);
  bench.miss(bench.key());
  bench.upload("d", request, "text of g");
  bench.plan({planned_kernel("k", 1)});
  EXPECT_TRUE(bench.none<StoreDetached>());
  bench.step(DetachedStored{store.key, store.task, {}});
  EXPECT_EQ(bench.one<Answer>().reply.outcome.value(), CacheOutcome::kQueued);
  bench.step(DetachedStored{store.key, store.task, {}});
  EXPECT_EQ(stats().detached_running, 1);
}

TEST_F(CoreDetached, GraphsAreKeptForThemAsFarAsThereIsRoom) {
  CoreOptions options;
  options.max_graph_bytes_kept = 9;
  CoreBench small(options);
  small.report("w");
  const auto detach = [&](const std::string& graph, uint64_t number) {
    CompileRequest request = detaching(number, graph);
    small.step(RequestReceived{"d", request});
    return request;
  };
  small.start({planned_kernel("k1", 1)}, Mode::kMaxAutotune, "g1", "c1");  // "graph" is 5 bytes
  small.start({planned_kernel("k2", 1)}, Mode::kMaxAutotune, "g2", "c2");
  detach("g2", 1);
  const Error error = small.one<Answer>().reply.outcome.error();
  EXPECT_EQ(error.code, Code::kOverloaded);
  EXPECT_EQ(error.retry_after_ms, options.retry_after_ms);
  EXPECT_EQ(small.core().stats(small.now_ms).flights_open, 2) << "who waits for it does so still";
  // One that would have to be kept is not even planned.
  small.take<StartPlan>();
  const CompileRequest request = detach("g3", 2);
  small.miss(small.key("g3"));
  small.upload("d", request);
  EXPECT_EQ(small.one<Answer>().reply.outcome.error().code, Code::kOverloaded);
  EXPECT_TRUE(small.none<StartPlan>());
  // What ended, or is in the store, makes room.
  detach("g1", 3);
  const StoreDetached store = small.one<StoreDetached>();
  small.step(DetachedStored{store.key, store.task, {}});
  EXPECT_EQ(small.one<Answer>().reply.outcome.value(), CacheOutcome::kQueued);
  const CompileRequest again = detach("g3", 4);
  small.miss(small.key("g3"));
  small.upload("d", again);
  small.plan({planned_kernel("k3", 1)}, Mode::kMaxAutotune, "g3");
  EXPECT_EQ(small.one<StoreDetached>().graph_text, "graph");
}

TEST_F(CoreDetached, ThoseWhoseGraphsAreBeingStoredHaveTheirPlacesAlready) {
  CoreOptions options;
  options.max_detached = 1;
  CoreBench full(options);
  full.report("w");
  for (const char* graph : {"a", "b"}) {
    CompileRequest request;
    request.request = 1;
    request.graph = digest_of(graph);
    request.target = cpu_target();
    request.mode = Mode::kMaxAutotune;
    request.detach = true;
    full.step(RequestReceived{graph, request});
    full.miss(full.key(graph));
    full.upload(graph, request);
  }
  full.plan({planned_kernel("of a", 1)}, Mode::kMaxAutotune, "a");
  full.plan({planned_kernel("of b", 1)}, Mode::kMaxAutotune, "b");
  EXPECT_EQ(full.one<StoreDetached>().key, full.key("a"));
  const Answer answer = full.one<Answer>();
  EXPECT_EQ(answer.client, "b");
  EXPECT_EQ(answer.reply.outcome.error().code, Code::kOverloaded);
  EXPECT_EQ(full.core().stats(full.now_ms).flights_open, 1);
}

TEST_F(CoreDetached, TooManyAreRefused) {
  CoreOptions options;
  options.max_detached = 1;
  CoreBench full(options);
  full.report("w");
  full.step(DetachedRecovered{{digest_of("a"), cpu_target(), Mode::kMaxAutotune}});
  full.take<Answer>();
  CompileRequest request;
  request.request = 1;
  request.graph = digest_of("b");
  request.target = cpu_target();
  request.detach = true;
  full.step(RequestReceived{"c", request});
  const Answer answer = full.one<Answer>();
  ASSERT_FALSE(answer.reply.outcome.has_value());
  EXPECT_EQ(answer.reply.outcome.error().code, Code::kOverloaded);
  EXPECT_GT(answer.reply.outcome.error().retry_after_ms, 0);
}

}  // namespace
}  // namespace kiln
