// Results that are taken back end what goes on with them, and nothing else.
#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

Error refused(CoreBench& bench) {
  const Answer answer = bench.one<Answer>();
  EXPECT_FALSE(answer.reply.outcome);
  return answer.reply.outcome ? Error{} : answer.reply.outcome.error();
}

TakingBackBegan of_kernel(const std::string& name) {
  TakingBackBegan began;
  began.kernels = {digest_of("kernel " + name)};
  return began;
}

TEST(CoreTakingBack, WhoWaitsForAKernelIsToldToAskAgainAndItIsTunedAnew) {
  CoreOptions options;
  options.policy.finalists = 1;
  CoreBench bench(options);
  bench.report("w");
  bench.start({planned_kernel("k", 2)});
  const Job first = bench.job_of("w");
  bench.report("w", {}, {ok_result(first, 0, 7)});  // known, but to nobody any more
  bench.step(of_kernel("k"));
  const Error error = refused(bench);
  EXPECT_EQ(error.code, Code::kOverloaded) << "a client asks again by itself";
  EXPECT_GT(error.retry_after_ms, 0);
  bench.step(TakingBackEnded{});
  bench.done.clear();
  bench.start({planned_kernel("k", 2)}, Mode::kMaxAutotune, "g", "c", 2);
  bench.report("w");
  const Job again = bench.job_of("w");
  EXPECT_EQ(again.candidates.size(), 2u) << "nothing is remembered";
  EXPECT_EQ(again.incumbent_us, 0);
}

TEST(CoreTakingBack, WhatHasNoPartInItGoesOn) {
  CoreBench bench;
  bench.report("w");
  bench.start({planned_kernel("k", 2)});
  bench.step(of_kernel("other"));
  bench.step(TakingBackEnded{});
  EXPECT_TRUE(bench.none<Answer>());
}

TEST(CoreTakingBack, AWorkersResultsAreForgottenWhereverTheyAre) {
  CoreBench bench;
  bench.report("evil");
  bench.start({planned_kernel("k", 2)});
  const Job job = bench.job_of("evil");
  bench.report("evil", {}, {ok_result(job, 0, 7)});
  TakingBackBegan began;
  began.workers = {"evil"};
  bench.step(began);
  EXPECT_EQ(refused(bench).code, Code::kOverloaded);
}

TEST(CoreTakingBack, AKeysToo) {
  CoreBench bench;
  bench.report_of_key("evil", "mallory");
  bench.start({planned_kernel("k", 2)});
  const Job job = bench.job_of("evil");
  bench.report_of_key("evil", "mallory", {ok_result(job, 0, 7)});
  TakingBackBegan began;
  began.owners = {"mallory"};
  bench.step(began);
  EXPECT_EQ(refused(bench).code, Code::kOverloaded);
}

// A planner may have read what is removed only now.
TEST(CoreTakingBack, NoPlanIsBelievedThatMayHaveReadIt) {
  PlannedKernel cached = planned_kernel("k", 1);
  cached.cached = ProgramKernel{};
  cached.cached->key = cached.key;
  for (const bool ends_first : {false, true}) {
    CoreBench bench;
    bench.report("w");
    const CompileRequest request = bench.ask("c", 1);
    bench.miss(bench.key());
    bench.upload("c", request);
    bench.step(of_kernel("k"));
    if (ends_first) bench.step(TakingBackEnded{});
    bench.plan({cached});
    EXPECT_TRUE(bench.none<StoreProgram>());
    EXPECT_EQ(refused(bench).code, Code::kOverloaded) << ends_first;
  }
}

TEST(CoreTakingBack, AProgramThatIsBeingStoredIsNotAnswered) {
  PlannedKernel cached = planned_kernel("k", 1);
  cached.cached = ProgramKernel{};
  cached.cached->key = cached.key;
  CoreBench bench;
  bench.report("w");
  bench.start({cached});
  const StoreProgram storing = bench.one<StoreProgram>();
  bench.step(of_kernel("k"));
  EXPECT_TRUE(bench.none<Answer>());
  bench.step(ProgramStored{storing.program.key, {}});
  EXPECT_EQ(refused(bench).code, Code::kOverloaded);
}

TEST(CoreTakingBack, RememberedFailuresAreForgotten) {
  CoreBench bench;
  bench.report("evil");
  bench.start({planned_kernel("k", 1)}, Mode::kDefault);
  const Job job = bench.job_of("evil");
  bench.report("evil", {}, {bad_result(job, 0, Verdict::kWrongResult)});
  EXPECT_EQ(refused(bench).code, Code::kInternal);
  bench.ask("c", 2, "g", Mode::kDefault);
  EXPECT_EQ(refused(bench).code, Code::kInternal) << "remembered";
  bench.step(of_kernel("k"));
  bench.step(TakingBackEnded{});
  bench.ask("c", 3, "g", Mode::kDefault);
  EXPECT_TRUE(bench.none<Answer>());
  EXPECT_FALSE(bench.none<LookUpProgram>());
}

}  // namespace
}  // namespace kiln
