// Programs that are not everybody's: who is answered with them, who joins them, who hears why they
// failed.
#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

class CoreAudience : public ::testing::Test {
 protected:
  void SetUp() override {
    bench_.report("w");
    bench_.take<SendOrders>();
  }
  RequestReceived request_of(const std::string& user, bool is_private, std::string text = {},
                             bool detach = false) const {
    RequestReceived event;
    event.client = "client of " + user;
    event.user = user;
    event.request.request = 1;
    event.request.graph = digest_of("g");
    event.request.target = cpu_target();
    event.request.mode = Mode::kMaxAutotune;
    event.request.graph_text = std::move(text);
    event.request.detach = detach;
    if (is_private) event.audience = Audience::of_user(user);
    return event;
  }
  // As far as the tuning of one kernel.
  void start(const RequestReceived& event) {
    bench_.step(event);
    const Digest task = task_key(bench_.key(), event.audience);
    bench_.step(ProgramLookedUp{task, ""});
    RequestReceived with_graph = event;
    with_graph.request.graph_text = "graph";
    bench_.step(with_graph);
    plan(task);
  }
  void plan(const Digest& task) {
    Program program;
    program.key = bench_.key();
    program.graph = digest_of("g");
    program.target = cpu_target();
    bench_.step(PlanFinished{task, std::move(program), {planned_kernel("k", 1)}});
  }
  // The worker finishes the kernel.
  void finish(Verdict verdict = Verdict::kOk) {
    const Job job = bench_.job_of("w");
    ASSERT_EQ(job.candidates.size(), 1u);
    bench_.report(
        "w", {},
        {verdict == Verdict::kOk
             ? ok_result(job, 0, 10)
             : bad_result(job, 0, verdict, "it does not compile\nsecret = algorithm();")});
  }
  // The store works, for whatever audience.
  std::vector<StoreProgram> store() {
    for (const StoreKernel& kernel : bench_.take<StoreKernel>())
      bench_.step(KernelStored{kernel.kernel.key, {}});
    const auto programs = bench_.take<StoreProgram>();
    for (const StoreProgram& each : programs) bench_.step(ProgramStored{each.task, {}});
    return programs;
  }
  static ProgramLookedUp found(const Digest& task, const Audience& audience) {
    ProgramLookedUp event{task, "{}"};
    event.audience = audience;
    return event;
  }

  CoreBench bench_;
};

TEST_F(CoreAudience, AnothersPrivateProgramIsAMiss) {
  bench_.step(request_of("eve", false));
  bench_.step(found(bench_.key(), Audience::of_user("ann")));
  EXPECT_TRUE(bench_.none<Answer>());
  EXPECT_EQ(bench_.one<AskForGraph>().client, "client of eve") << "her own, to be tuned for her";
  bench_.step(request_of("ann", true));
  bench_.step(found(task_key(bench_.key(), Audience::of_user("ann")), Audience::of_user("ann")));
  EXPECT_EQ(bench_.one<Answer>().reply.outcome.value(), CacheOutcome::kHit);
}

TEST_F(CoreAudience, OfOneLookUpWhoMayHaveItGetsItAndTheOthersAMiss) {
  bench_.step(request_of("ann", false));
  RequestReceived eve = request_of("eve", false);
  eve.request.check_only = true;
  bench_.step(eve);
  RequestReceived admin = request_of("root", false);
  admin.viewer.sees_all = true;
  bench_.step(admin);
  bench_.step(found(bench_.key(), Audience::of_user("ann")));
  std::map<ClientId, Result<CacheOutcome>> answers;
  for (const Answer& answer : bench_.take<Answer>())
    answers.emplace(answer.client, answer.reply.outcome);
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers.at("client of ann").value(), CacheOutcome::kHit);
  EXPECT_EQ(answers.at("client of root").value(), CacheOutcome::kHit);
  EXPECT_EQ(answers.at("client of eve").error().code, Code::kNotFound);
}

TEST_F(CoreAudience, WhoHasOnlyTheDigestDoesNotJoinAPrivateProgram) {
  start(request_of("ann", true));
  bench_.take<AskForGraph>();
  bench_.take<LookUpProgram>();
  bench_.step(request_of("eve", false));
  EXPECT_EQ(bench_.one<LookUpProgram>().key, bench_.key()) << "a task of its own";
  bench_.miss(bench_.key());
  EXPECT_EQ(bench_.one<AskForGraph>().client, "client of eve");
  finish();
  store();
  EXPECT_EQ(bench_.one<Answer>().client, "client of ann");
}

TEST_F(CoreAudience, WithTheGraphItIsOnesOwnAndItsKernelsAreTunedOnce) {
  const RequestReceived ann = request_of("ann", true), eve = request_of("eve", false);
  start(ann);
  start(eve);
  finish();
  EXPECT_EQ(bench_.job_of("w").candidates.size(), 0u) << "both wait for the one kernel";
  const auto programs = store();
  ASSERT_EQ(programs.size(), 2u);
  for (const StoreProgram& each : programs) {
    EXPECT_EQ(each.program.key, bench_.key());
    EXPECT_EQ(each.task, task_key(bench_.key(), each.audience));
  }
  EXPECT_NE(programs[0].audience, programs[1].audience);
  EXPECT_EQ(bench_.take<Answer>().size(), 2u);
}

TEST_F(CoreAudience, WhatACompilerSaidIsForThoseWhoseGraphItWas) {
  start(request_of("ann", false));
  bench_.step(request_of("eve", false));  // she joins, by the digest alone
  finish(Verdict::kCompileFailed);
  bench_.store_all();
  std::map<ClientId, std::string> heard;
  for (const Answer& answer : bench_.take<Answer>())
    heard[answer.client] = answer.reply.outcome.error().message;
  ASSERT_EQ(heard.size(), 2u);
  bench_.take<LookUpProgram>();
  EXPECT_NE(heard.at("client of ann").find("secret"), std::string::npos);
  EXPECT_EQ(heard.at("client of eve").find("secret"), std::string::npos);
  EXPECT_NE(heard.at("client of eve").find("ask again"), std::string::npos);
  bench_.step(request_of("ann", false));
  EXPECT_NE(bench_.one<Answer>().reply.outcome.error().message.find("secret"), std::string::npos);
  bench_.step(request_of("eve", false));
  EXPECT_TRUE(bench_.none<Answer>()) << "remembered for ann: eve's graph is asked for";
  EXPECT_EQ(bench_.one<LookUpProgram>().key, bench_.key());
}

TEST_F(CoreAudience, AStaleProgramIsServedToWhomItIsForAlone) {
  RequestReceived ann = request_of("ann", false), eve = request_of("eve", false);
  ann.request.check_only = true;
  bench_.step(ann);
  bench_.step(eve);
  ProgramLookedUp stale = found(bench_.key(), Audience::of_user("ann"));
  stale.stale = true;
  bench_.step(stale);
  const Answer answer = bench_.one<Answer>();
  EXPECT_EQ(answer.client, "client of ann");
  EXPECT_TRUE(answer.reply.outcome && answer.reply.stale);
  EXPECT_EQ(bench_.one<AskForGraph>().client, "client of eve");
}

TEST_F(CoreAudience, WhatIsQueuedKeepsItsAudienceAndIsNamedToIt) {
  start(request_of("ann", true, "", true));
  const StoreDetached store = bench_.one<StoreDetached>();
  EXPECT_EQ(store.task.audience, Audience::of_user("ann"));
  EXPECT_EQ(store.task.owner, "ann");
  bench_.step(DetachedStored{store.key, store.task, {}});
  const auto named_to = [&](const Viewer& viewer) {
    return bench_.core().stats(bench_.now_ms, viewer).detached.size();
  };
  EXPECT_EQ(named_to({"ann", "", false}), 1u);
  EXPECT_EQ(named_to({"eve", "", false}), 0u);
  EXPECT_EQ(named_to({"root", "", true}), 1u);
  EXPECT_EQ(bench_.core().stats(bench_.now_ms).detached[0].program, bench_.key());
  bench_.step(CancelDetached{bench_.key()});
  EXPECT_EQ(named_to({"ann", "", false}), 0u);
}

}  // namespace
}  // namespace kiln
