// Programs that templates of another version made: served at once, and replaced by what is tuned
// when nobody waits.
#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

constexpr char kOld[] = R"({"old": true})";

class CoreStale : public ::testing::Test {
 protected:
  explicit CoreStale(CoreOptions options = {}) : bench(std::move(options)) {}
  CompileRequest ask(const ClientId& client, uint64_t number, bool strict = false,
                     bool check = false) {
    CompileRequest request;
    request.request = number;
    request.graph = digest_of("g");
    request.target = cpu_target();
    request.mode = Mode::kMaxAutotune;
    request.strict = strict;
    request.check_only = check;
    bench.step(RequestReceived{client, request});
    return request;
  }
  void found_stale() { bench.step(ProgramLookedUp{bench.key(), kOld, {}, true}); }
  void tune() {
    const Job job = bench.job_of("w");
    ASSERT_EQ(job.candidates.size(), 1u);
    bench.report("w", {}, {ok_result(job, 0, 10)});
    bench.store_all();
  }
  static void expect_stale(const Answer& answer) {
    ASSERT_TRUE(answer.reply.outcome) << answer.reply.outcome.error().message;
    EXPECT_EQ(*answer.reply.outcome, CacheOutcome::kHit);
    EXPECT_TRUE(answer.reply.stale);
    EXPECT_EQ(answer.reply.program_json, kOld);
  }
  // Up to where the successor is queued.
  void replace() {
    const CompileRequest request = ask("c", 1);
    found_stale();
    bench.upload("c", request, "text of g");
    expect_stale(bench.one<Answer>());
    bench.plan({planned_kernel("k", 1)});
    const auto store = bench.one<StoreDetached>();
    EXPECT_EQ(store.graph_text, "text of g");
    bench.step(DetachedStored{store.key, store.task, {}});
  }
  Stats stats() { return bench.core().stats(bench.now_ms); }

  void SetUp() override {
    bench.report("w");
    bench.take<SendOrders>();
  }
  CoreBench bench;
};

TEST_F(CoreStale, OneClientIsAskedForTheGraphAndNobodyWaitsForTheSuccessor) {
  const CompileRequest first = ask("a", 1);
  ask("b", 1);
  found_stale();
  expect_stale(bench.one<Answer>());
  const auto asked = bench.one<AskForGraph>();
  EXPECT_EQ(asked.client, "a");
  ask("late", 1);
  expect_stale(bench.one<Answer>());
  bench.upload("a", first);
  const auto answer = bench.one<Answer>();
  EXPECT_EQ(answer.client, "a");
  expect_stale(answer);
  EXPECT_FALSE(bench.none<StartPlan>());
  EXPECT_EQ(stats().requests_open, 0);
}

TEST_F(CoreStale, TheSuccessorIsQueuedTunedAndTakesThePlace) {
  replace();
  EXPECT_EQ(stats().detached_running, 1);
  ask("d", 1);
  expect_stale(bench.one<Answer>());
  tune();
  ASSERT_EQ(bench.programs.size(), 1u);
  EXPECT_TRUE(bench.one<EndDetached>().outcome.has_value());
  EXPECT_EQ(stats().flights_open, 0);
}

TEST_F(CoreStale, WhatIsQueuedAlreadyIsNotAskedForAgain) {
  replace();
  tune();
  bench.take<EndDetached>();
  ask("c", 2);
  found_stale();
  EXPECT_FALSE(bench.none<AskForGraph>()) << "it is not queued any more";
  bench.step(RequestCancelled{"c", 2});
  bench.step(DetachedRecovered{{digest_of("g"), cpu_target(), Mode::kMaxAutotune}});
  ask("c", 3);
  found_stale();
  expect_stale(bench.one<Answer>());
  EXPECT_TRUE(bench.none<AskForGraph>());
}

TEST_F(CoreStale, WhoIsStrictWaitsForTheSuccessor) {
  const CompileRequest strict = ask("strict", 1, true);
  ask("c", 1);
  found_stale();
  const auto answer = bench.one<Answer>();
  EXPECT_EQ(answer.client, "c");
  expect_stale(answer);
  EXPECT_EQ(bench.one<AskForGraph>().client, "strict");
  bench.upload("strict", strict);
  bench.plan({planned_kernel("k", 1)});
  EXPECT_TRUE(bench.none<Answer>());
  tune();
  const auto tuned = bench.one<Answer>();
  EXPECT_EQ(tuned.client, "strict");
  EXPECT_FALSE(tuned.reply.stale);
  EXPECT_EQ(tuned.reply.outcome.value(), CacheOutcome::kTuned);
}

TEST_F(CoreStale, ACheckIsAHitUnlessItIsStrictAndStartsNothing) {
  ask("c", 1, false, true);
  ask("c", 2, true, true);
  found_stale();
  const auto answers = bench.take<Answer>();
  ASSERT_EQ(answers.size(), 2u);
  for (const Answer& answer : answers) {
    if (answer.reply.request == 1)
      expect_stale(answer);
    else
      EXPECT_EQ(answer.reply.outcome.error().code, Code::kNotFound);
  }
  EXPECT_TRUE(bench.none<AskForGraph>());
  EXPECT_EQ(stats().flights_open, 0);
}

TEST_F(CoreStale, WhatMustNotBeServedIsAMiss) {
  ask("c", 1);
  bench.step(ProgramLookedUp{bench.key(), "", {}, true});
  EXPECT_TRUE(bench.none<Answer>());
  EXPECT_FALSE(bench.none<AskForGraph>());
}

TEST_F(CoreStale, AClientThatNeverSendsItsGraphIsServedAllTheSame) {
  ask("c", 1);
  found_stale();
  bench.take<AskForGraph>();
  bench.tick(CoreOptions{}.graph_timeout_ms);
  expect_stale(bench.one<Answer>());
  EXPECT_EQ(stats().flights_open, 0);
}

// The successor is not tried again with every request, and the old one is served meanwhile.
TEST_F(CoreStale, ASuccessorThatCannotBeMadeCostsNobodyTheProgram) {
  const CompileRequest request = ask("c", 1);
  found_stale();
  bench.upload("c", request);
  expect_stale(bench.one<Answer>());
  bench.step(PlanFinished{bench.key(), fail(Code::kUnsupported, "no template covers it"), {}});
  EXPECT_EQ(stats().flights_open, 0);
  bench.take<AskForGraph>();
  ask("c", 2);
  found_stale();
  expect_stale(bench.one<Answer>());
  EXPECT_TRUE(bench.none<AskForGraph>());
  ask("strict", 1, true);
  EXPECT_EQ(bench.one<Answer>().reply.outcome.error().code, Code::kUnsupported);
  bench.tick(CoreOptions{}.failure_memory_ms + 1);
  ask("c", 3);
  found_stale();
  EXPECT_FALSE(bench.none<AskForGraph>()) << "after a while it is tried again";
}

CoreOptions without_a_queue() {
  CoreOptions options;
  options.max_detached = 0;
  return options;
}

class CoreStaleWithoutAQueue : public CoreStale {
 protected:
  CoreStaleWithoutAQueue() : CoreStale(without_a_queue()) {}
};

TEST_F(CoreStaleWithoutAQueue, ItIsServedAndNotReplaced) {
  ask("c", 1);
  found_stale();
  expect_stale(bench.one<Answer>());
  EXPECT_TRUE(bench.none<AskForGraph>());
  EXPECT_EQ(stats().flights_open, 0);
}

TEST_F(CoreStale, WhatIsTakenBackMeanwhileIsServedToNobody) {
  replace();
  bench.take<Answer>();
  TakingBackBegan began;
  began.programs.insert(digest_of("another"));
  bench.step(began);
  ask("d", 1);
  EXPECT_TRUE(bench.none<Answer>()) << "it may be among what is taken back: d waits";
}

}  // namespace
}  // namespace kiln
