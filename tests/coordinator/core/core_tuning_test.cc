// From candidates to a winner: modes, screening, finals, resuming from records, storing.
#include <algorithm>

#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

CoreOptions two_finalists() {
  CoreOptions options;
  options.policy.finalists = 2;
  return options;
}

std::vector<CandidateResult> results_of(const Job& job, const std::vector<double>& us) {
  std::vector<CandidateResult> results;
  for (const CandidateJob& c : job.candidates)
    results.push_back(ok_result(job, c.index, us[c.index]));
  return results;
}

TEST(CoreTuning, NoWorkerHearsWhichLinesAKernelIsOf) {
  CoreBench bench;
  bench.report("w");
  PlannedKernel planned = planned_kernel("k", 1);
  planned.workload_text = "kiln.graph 1\nreturn\n#from\taten.add\tmodel.py:1 in f\t\t%0\n";
  bench.start({planned}, Mode::kDefault);
  const Job job = bench.job_of("w");
  EXPECT_EQ(job.workload_text, "kiln.graph 1\nreturn\n");
  bench.report("w", {}, {ok_result(job, 0, 0)});
  EXPECT_EQ(bench.one<StoreKernel>().workload_text, planned.workload_text) << "the page shows them";
}

TEST(CoreTuning, DefaultModeCompilesTheFirstScheduleOnly) {
  CoreBench bench;
  bench.report("w");
  bench.start({planned_kernel("k", 5)}, Mode::kDefault);
  const Job job = bench.job_of("w");
  EXPECT_EQ(job.kind, Job::Kind::kCompile);
  EXPECT_EQ(indices(job), (std::vector<int>{0}));
  EXPECT_EQ(job.workload_text, "workload k");
  bench.report("w", {}, {ok_result(job, 0, 0)});
  bench.store_all();
  const Answer answer = bench.one<Answer>();
  EXPECT_EQ(answer.reply.outcome.value(), CacheOutcome::kTuned);
  const Program program = program_from_json(answer.reply.program_json).value();
  ASSERT_EQ(program.kernels.size(), 1u);
  EXPECT_EQ(program.kernels[0].schedule, schedule_of(0).to_string());
  EXPECT_EQ(program.kernels[0].blob, Digest::of("binary 0"));
  EXPECT_EQ(program.kernels[0].family, "pointwise");
  EXPECT_EQ(program.kernels[0].report, (KernelReport{1, 0, 0, 0, 0}));
  ASSERT_EQ(bench.kernels.size(), 1u);
  EXPECT_EQ(bench.kernels[0].binary, "binary 0");
  ASSERT_EQ(bench.programs.size(), 1u);
  EXPECT_EQ(bench.programs[0], program);
}

TEST(CoreTuning, DefaultModeGoesOnToTheNextScheduleWhenOneFailsForGood) {
  CoreBench bench;
  bench.report("w");
  bench.start({planned_kernel("k", 3)}, Mode::kDefault);
  const Job first = bench.job_of("w");
  bench.report("w", {}, {bad_result(first, 0, Verdict::kCompileFailed)});
  const Job second = bench.job_of("w");
  EXPECT_EQ(indices(second), (std::vector<int>{1}));
  bench.report("w", {}, {ok_result(second, 1, 0)});
  bench.store_all();
  const Program program = program_from_json(bench.one<Answer>().reply.program_json).value();
  EXPECT_EQ(program.kernels[0].report, (KernelReport{2, 0, 1, 0, 0}));
}

TEST(CoreTuning, ScreeningGoesBestGuessFirstAndPassesTheIncumbent) {
  CoreOptions options = two_finalists();
  options.batch_size = 2;
  CoreBench bench(options);
  bench.report("w");
  bench.start({planned_kernel("k", 4)});
  const Job first = bench.job_of("w");
  EXPECT_EQ(first.kind, Job::Kind::kScreen);
  EXPECT_EQ(indices(first), (std::vector<int>{0, 1}));
  EXPECT_EQ(first.incumbent_us, 0);
  bench.report("w", {}, {ok_result(first, 0, 12), ok_result(first, 1, 15)});
  const Job second = bench.job_of("w");
  EXPECT_EQ(indices(second), (std::vector<int>{2, 3}));
  EXPECT_EQ(second.incumbent_us, 12);
  EXPECT_NE(second.lease, first.lease);
}

TEST(CoreTuning, FinalistsAreRacedOnOneWorkerAndTheFinalDecides) {
  CoreBench bench(two_finalists());
  bench.report("w");
  bench.report("v");
  bench.start({planned_kernel("k", 3)});
  std::vector<Job> jobs;
  for (SendOrders& orders : bench.take<SendOrders>())
    for (Job& job : orders.orders.jobs) {
      bench.report(orders.worker, {}, results_of(job, {12, 10, 11}));
    }
  Job final_job;
  int finals = 0;
  for (SendOrders& orders : bench.take<SendOrders>())
    for (Job& job : orders.orders.jobs) {
      ++finals;
      final_job = job;
      if (job.kind == Job::Kind::kFinal)
        bench.report(orders.worker, {}, {ok_result(job, 1, 10.5, 40), ok_result(job, 2, 10.0, 40)});
    }
  EXPECT_EQ(finals, 1);
  EXPECT_EQ(final_job.kind, Job::Kind::kFinal);
  EXPECT_EQ(indices(final_job), (std::vector<int>{1, 2}));
  EXPECT_EQ(final_job.candidates[0].binary, "binary 1");
  EXPECT_EQ(final_job.candidates[1].recipe_json, recipe_to_json(Recipe{}));
  bench.store_all();
  const Program program = program_from_json(bench.one<Answer>().reply.program_json).value();
  EXPECT_EQ(program.kernels[0].schedule, schedule_of(2).to_string());
  EXPECT_EQ(program.kernels[0].report, (KernelReport{3, 3, 0, 10.0, 12.0 * 10.0 / 11.0}))
      << "the first guess as if it had been in the final: the winner was screened at 11";
  EXPECT_EQ(bench.records.size(), 5u);  // losers and finals too
  EXPECT_EQ(bench.core().stats(bench.now_ms).candidates_measured, 3);
  EXPECT_EQ(bench.core().stats(bench.now_ms).candidates_compiled, 3);
}

TEST(CoreTuning, TieInTheFinalKeepsTheLeaderOfTheScreening) {
  CoreBench bench(two_finalists());
  bench.report("w");
  bench.start({planned_kernel("k", 2)});
  bench.report("w", {}, results_of(bench.job_of("w"), {10, 10.2}));
  const Job job = bench.job_of("w");
  ASSERT_EQ(job.kind, Job::Kind::kFinal);
  bench.report("w", {}, {ok_result(job, 0, 10.05, 40), ok_result(job, 1, 10.0, 40)});
  bench.store_all();
  const Program program = program_from_json(bench.one<Answer>().reply.program_json).value();
  EXPECT_EQ(program.kernels[0].schedule, schedule_of(0).to_string());
}

TEST(CoreTuning, NoFinalWhenScreeningLeftOneCandidate) {
  CoreBench bench;
  bench.report("w");
  bench.start({planned_kernel("k", 3)});
  const Job job = bench.job_of("w");
  bench.report(
      "w", {},
      {ok_result(job, 0, 20), ok_result(job, 1, 10), bad_result(job, 2, Verdict::kWrongResult)});
  EXPECT_EQ(bench.job_of("w").lease, 0u);
  bench.store_all();
  const Program program = program_from_json(bench.one<Answer>().reply.program_json).value();
  EXPECT_EQ(program.kernels[0].report, (KernelReport{3, 2, 1, 10, 20}));
}

TEST(CoreTuning, KernelWithoutSurvivorsFailsWithItsLogAndIsRemembered) {
  CoreBench bench;
  bench.report("w");
  bench.start({planned_kernel("k", 2), planned_kernel("l", 2)});
  const Job job = bench.job_of("w");
  bench.report("w", {},
               {bad_result(job, 0, Verdict::kCompileFailed, "error: oops"),
                bad_result(job, 1, Verdict::kWrongResult)});
  const Error error = bench.one<Answer>().reply.outcome.error();
  EXPECT_EQ(error.code, Code::kInternal);
  EXPECT_NE(error.message.find("1 compile_failed, 1 wrong_result"), std::string::npos);
  EXPECT_NE(error.message.find("error: oops"), std::string::npos);
  EXPECT_NE(error.message.find(digest_of("kernel k").short_hex()), std::string::npos);
  EXPECT_EQ(bench.job_of("w").lease, 0u) << "the other kernel is not tuned for nobody";
  // The program fails at once, and so does another program with the same kernel.
  bench.ask("c", 2);
  EXPECT_EQ(bench.one<Answer>().reply.outcome.error().message, error.message);
  bench.start({planned_kernel("k", 2)}, Mode::kMaxAutotune, "other", "c", 3);
  EXPECT_EQ(bench.one<Answer>().reply.outcome.error().message, error.message);
  EXPECT_EQ(bench.core().stats(bench.now_ms).flights_open, 0);
}

TEST(CoreTuning, LogInAnErrorIsBounded) {
  CoreBench bench;
  bench.report("w");
  bench.start({planned_kernel("k", 1)}, Mode::kDefault);
  const Job job = bench.job_of("w");
  bench.report("w", {}, {bad_result(job, 0, Verdict::kCompileFailed, std::string(1 << 20, 'x'))});
  EXPECT_LT(bench.one<Answer>().reply.outcome.error().message.size(), 5000u);
  bench.store_all();
  EXPECT_EQ(bench.records[0].log.size(), 4096u);
}

TEST(CoreTuning, CachedKernelsNeedNoWork) {
  CoreBench bench;
  bench.report("w");
  PlannedKernel planned = planned_kernel("k", 3);
  planned.cached.emplace();
  planned.cached->key = planned.key;
  planned.cached->schedule = "kept";
  bench.start({planned});
  EXPECT_EQ(bench.job_of("w").lease, 0u);
  EXPECT_TRUE(bench.none<StoreKernel>());
  bench.store_all();
  ASSERT_EQ(bench.programs.size(), 1u);
  EXPECT_EQ(bench.programs[0].kernels[0].schedule, "kept");
}

// The worker's own count is right also where a lease was taken back: its result is not taken, and
// the next lease finds the object.
TEST(CoreTuning, CompilesAreCountedThoughALeaseWasTakenBack) {
  CoreBench bench;
  const auto report = [&](int64_t compiled, std::vector<CandidateResult> results) {
    WorkerReport told = bench.report_of("w", {}, std::move(results));
    told.compiled = compiled;
    bench.step(ReportReceived{"w", std::move(told)});
  };
  const auto compiled = [&] { return bench.core().stats(bench.now_ms).candidates_compiled; };
  report(0, {});
  bench.start({planned_kernel("k", 1)}, Mode::kMaxAutotune);
  const Job late = bench.job_of("w");
  bench.step(WorkerGone{"w"});
  CandidateResult found = ok_result(late, 0, 10);
  report(1, {found});  // under a lease that is over
  EXPECT_EQ(compiled(), 1);
  const Job again = bench.job_of("w");
  ASSERT_NE(again.lease, 0u);
  found = ok_result(again, 0, 10);
  found.compiled = false;
  report(1, {found});
  EXPECT_EQ(compiled(), 1);
  EXPECT_EQ(bench.core().stats(bench.now_ms).retries, 1);
}

TEST(CoreTuning, TwoProgramsShareTheTaskOfAKernel) {
  CoreOptions options;
  options.batch_size = 8;
  CoreBench bench(options);
  bench.report("w");
  bench.start({planned_kernel("k", 1)}, Mode::kMaxAutotune, "g1", "a", 1);
  const Job job = bench.job_of("w");
  bench.start({planned_kernel("k", 1)}, Mode::kMaxAutotune, "g2", "b", 1);
  EXPECT_EQ(bench.job_of("w").lease, 0u);
  bench.report("w", {}, {ok_result(job, 0, 10)});
  bench.store_all();
  EXPECT_EQ(bench.take<Answer>().size(), 2u);
  EXPECT_EQ(bench.kernels.size(), 1u);
  EXPECT_EQ(bench.core().stats(bench.now_ms).candidates_compiled, 1);
}

TEST(CoreTuning, KernelDoneWhileAnotherProgramWasPlannedIsNotTunedAgain) {
  CoreBench bench;
  bench.report("w");
  bench.start({planned_kernel("k", 1)}, Mode::kMaxAutotune, "g1", "a", 1);
  const CompileRequest request = bench.ask("b", 1, "g2");
  bench.miss(bench.key("g2"));
  bench.upload("b", request);  // the planner looks at the cache now, and finds nothing
  const Job job = bench.job_of("w");
  bench.report("w", {}, {ok_result(job, 0, 10)});
  bench.store_all();
  EXPECT_EQ(bench.one<Answer>().client, "a");
  bench.take<SendOrders>();
  bench.plan({planned_kernel("k", 1)}, Mode::kMaxAutotune, "g2");
  EXPECT_EQ(bench.job_of("w").lease, 0u);
  bench.store_all();
  EXPECT_EQ(bench.one<Answer>().client, "b");
}

TEST(CoreTuning, MeasurementsFromBeforeACrashAreNotTakenAgain) {
  CoreBench bench(two_finalists());
  bench.report("w");
  PlannedKernel planned = planned_kernel("k", 4);
  planned.records = {record_of(planned, 1, 10), record_of(planned, 0, 10.4)};
  TuningRecord wrong = record_of(planned, 2, 0);
  wrong.verdict = Verdict::kWrongResult;
  wrong.measurement = {};
  planned.records.push_back(wrong);
  bench.start({planned});
  const Job rest = bench.job_of("w");
  EXPECT_EQ(rest.kind, Job::Kind::kScreen);
  EXPECT_EQ(indices(rest), (std::vector<int>{3}));
  EXPECT_EQ(rest.incumbent_us, 10);
  bench.report("w", {}, {ok_result(rest, 3, 50)});
  // The finalists' binaries went with the crash: compiled, not measured, before the final.
  const Job rebuild = bench.job_of("w");
  EXPECT_EQ(rebuild.kind, Job::Kind::kCompile);
  EXPECT_EQ(indices(rebuild), (std::vector<int>{1, 0}));
  bench.report("w", {}, {ok_result(rebuild, 0, 0), ok_result(rebuild, 1, 0)});
  const Job final_job = bench.job_of("w");
  EXPECT_EQ(final_job.kind, Job::Kind::kFinal);
  bench.report("w", {}, {ok_result(final_job, 0, 9, 40), ok_result(final_job, 1, 10, 40)});
  bench.store_all();
  const Program program = program_from_json(bench.one<Answer>().reply.program_json).value();
  EXPECT_EQ(program.kernels[0].schedule, schedule_of(0).to_string());
  EXPECT_EQ(program.kernels[0].report, (KernelReport{4, 3, 1, 9, 9}));
}

TEST(CoreTuning, WinnerWhoseBinaryIsGoneIsOnlyCompiledAgain) {
  CoreBench bench(two_finalists());
  bench.report("w");
  PlannedKernel planned = planned_kernel("k", 2);
  planned.records = {record_of(planned, 0, 10), record_of(planned, 1, 10.5),
                     record_of(planned, 0, 10.4), record_of(planned, 1, 10.0)};  // the final
  bench.start({planned});
  const Job job = bench.job_of("w");
  EXPECT_EQ(job.kind, Job::Kind::kCompile);
  EXPECT_EQ(indices(job), (std::vector<int>{1}));
  bench.report("w", {}, {ok_result(job, 1, 0)});
  EXPECT_EQ(bench.job_of("w").lease, 0u);
  bench.store_all();
  EXPECT_EQ(bench.kernels.at(0).binary, "binary 1");
}

TEST(CoreTuning, TransientFailuresFromBeforeACrashAreTriedAgain) {
  CoreBench bench;
  bench.report("w");
  PlannedKernel planned = planned_kernel("k", 1);
  planned.records = {record_of(planned, 0, 0)};
  planned.records[0].verdict = Verdict::kRunnerDied;
  bench.start({planned});
  EXPECT_EQ(indices(bench.job_of("w")), (std::vector<int>{0}));
}

TEST(CoreTuning, StoreThatFailsStillAnswersWithTheProgram) {
  CoreBench bench;
  bench.report("w");
  bench.start({planned_kernel("k", 1)}, Mode::kDefault);
  const Job job = bench.job_of("w");
  bench.report("w", {}, {ok_result(job, 0, 0)});
  EXPECT_TRUE(bench.none<Answer>());
  const StoreKernel store = bench.one<StoreKernel>();
  bench.step(KernelStored{store.kernel.key, fail(Code::kUnavailable, "no space left")});
  EXPECT_TRUE(bench.none<StoreProgram>());
  const Answer answer = bench.one<Answer>();
  EXPECT_EQ(answer.reply.outcome.value(), CacheOutcome::kTuned);
  EXPECT_TRUE(program_from_json(answer.reply.program_json).has_value());
  EXPECT_EQ(bench.core().stats(bench.now_ms).store_failures, 1);
}

TEST(CoreTuning, ProgramRowThatCannotBeStoredIsStillAnswered) {
  CoreBench bench;
  bench.report("w");
  bench.start({});
  bench.step(
      ProgramStored{bench.one<StoreProgram>().program.key, fail(Code::kUnavailable, "no space")});
  EXPECT_TRUE(bench.one<Answer>().reply.outcome.has_value());
}

TEST(CoreTuning, OnlyTheBestFewBinariesAreKept) {
  CoreBench bench(two_finalists());
  bench.report("w");
  PlannedKernel planned = planned_kernel("k", 8);
  bench.start({planned});
  for (int round = 0; round < 2; ++round) {
    const Job job = bench.job_of("w");
    ASSERT_EQ(job.kind, Job::Kind::kScreen);
    bench.report("w", {}, results_of(job, {19, 18, 17, 16, 15, 14, 13, 12.9}));
  }
  const Job job = bench.job_of("w");  // no rebuild: the finalists' binaries were among those kept
  EXPECT_EQ(job.kind, Job::Kind::kFinal);
  EXPECT_EQ(indices(job), (std::vector<int>{7, 6}));
}

TEST(CoreTuning, ResultsThatCannotBeTrueAreTheWorkersFault) {
  CoreBench bench;
  bench.report("w");
  bench.start({planned_kernel("k", 1)});
  const Job first = bench.job_of("w");
  bench.report("w", {}, {ok_result(first, 0, -1)});
  const Job second = bench.job_of("w");
  EXPECT_EQ(indices(second), (std::vector<int>{0}));
  CandidateResult garbled = ok_result(second, 0, 10);
  garbled.recipe_json = "{";
  bench.report("w", {}, {garbled});
  const Job third = bench.job_of("w");
  EXPECT_EQ(indices(third), (std::vector<int>{0}));
  bench.report("w", {}, {ok_result(third, 0, 10)});
  bench.store_all();
  EXPECT_TRUE(bench.one<Answer>().reply.outcome.has_value());
  EXPECT_EQ(bench.core().stats(bench.now_ms).retries, 2);
}

}  // namespace
}  // namespace kiln
