// Candidates that call a library: which worker gets them, and what wins when they are the fastest.
#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

constexpr char kLibrary[] = "cublaslt", kTemplate[] = "cublaslt.matmul";

// Candidates 0 and 1 call the library, 2 and 3 do not.
PlannedKernel kernel_with_library() {
  PlannedKernel planned = planned_kernel("k", 4);
  for (const size_t i : {0, 1}) planned.schedules[i].template_name = kTemplate;
  planned.libraries = {{kTemplate, kLibrary}};
  return planned;
}

class CoreLibraries : public ::testing::Test {
 protected:
  void report(const WorkerId& worker, const std::string& version,
              std::vector<CandidateResult> results = {}) {
    WorkerReport report = bench_.report_of(worker, {}, std::move(results));
    if (!version.empty()) report.libraries = {{kLibrary, version}};
    bench_.step(ReportReceived{worker, std::move(report)});
  }
  // As a worker answers: a call's binary is its recipe, with the version that was asked for.
  static CandidateResult result(const Job& job, int index, double us) {
    CandidateResult result = ok_result(job, index, us);
    for (const CandidateJob& candidate : job.candidates) {
      if (candidate.index != index || candidate.schedule.template_name != kTemplate) continue;
      if (job.kind == Job::Kind::kFinal) continue;
      Recipe recipe;
      recipe.inputs = {{DType::kF32, {4}}, {DType::kF32, {4}}};
      recipe.outputs = {{DType::kF32, {4}}};
      LibraryCall& call = recipe.phases.emplace_back().call.emplace();
      call.library = kLibrary;
      call.version = std::to_string(candidate.schedule.get(kVersionDecision, 0));
      call.m = call.n = call.k = 2;
      call.a.ld = call.b.ld = call.d.ld = 2;
      call.b.buffer = 1, call.d.buffer = 2;
      const Artifact artifact = library_artifact(recipe);
      result.recipe_json = recipe_to_json(artifact.recipe);
      result.binary = artifact.binary;
    }
    return result;
  }
  // Does every job of `worker`, each candidate in its time, until there are none.
  void work_off(const WorkerId& worker, const std::string& version,
                const std::vector<double>& times_us) {
    bench_.work_off(worker, [&](const Job& job) {
      std::vector<CandidateResult> results;
      for (const int i : indices(job))
        results.push_back(result(job, i, times_us[static_cast<size_t>(i)]));
      kinds_.push_back(job.kind);
      report(worker, version, std::move(results));
    });
  }

  CoreBench bench_{[] {
    CoreOptions options;
    options.batch_size = 8;
    return options;
  }()};
  std::vector<Job::Kind> kinds_;
};

TEST_F(CoreLibraries, ACandidateGoesWhereItsLibraryIsAndSaysTheVersion) {
  report("bare", "");
  report("has", "130100");
  bench_.start({kernel_with_library()});
  std::map<WorkerId, std::vector<CandidateJob>> leased;
  for (const SendOrders& orders : bench_.take<SendOrders>())
    for (const Job& job : orders.orders.jobs) leased[orders.worker] = job.candidates;
  for (const CandidateJob& candidate : leased["bare"])
    EXPECT_NE(candidate.schedule.template_name, kTemplate);
  ASSERT_FALSE(leased["has"].empty());
  for (const CandidateJob& candidate : leased["has"])
    EXPECT_EQ(candidate.schedule.get(kVersionDecision, 0),
              candidate.schedule.template_name == kTemplate ? 130100 : 0);
}

TEST_F(CoreLibraries, ALibraryWinsBesideTheBestKernelOfKilnsOwn) {
  report("w", "130100");
  bench_.start({kernel_with_library()});
  work_off("w", "130100", {20, 10, 40, 30});
  ASSERT_EQ(bench_.kernels.size(), 1u);
  const StoreKernel& stored = bench_.kernels[0];
  EXPECT_EQ(stored.kernel.schedule, "cublaslt.matmul vector=1 version=130100");
  ASSERT_TRUE(stored.kernel.recipe.calls_library());
  EXPECT_EQ(stored.kernel.recipe.phases[0].call->version, "130100");
  ASSERT_TRUE(stored.kernel.fallback);
  EXPECT_EQ(stored.kernel.fallback->schedule, "cpu.pointwise vector=3");
  EXPECT_EQ(stored.kernel.fallback->us, 30);
  EXPECT_EQ(stored.binary, "binary 3") << "the call needs none";
  EXPECT_EQ(stored.kernel.blob, Digest::of("binary 3"));
  EXPECT_EQ(stored.kernel.report.best_us, 10);
  EXPECT_EQ(stored.kernel.report.first_us, 40) << "the cost model's own first guess";
  EXPECT_EQ(stored.kernel.report.candidates, 4);
  for (const TuningRecord& record : bench_.records)
    EXPECT_EQ(record.schedule.get(kVersionDecision, 0),
              record.schedule.template_name == kTemplate ? 130100 : 0);
  const auto stored_json = kernel_from_json(kernel_to_json(stored.kernel));
  ASSERT_TRUE(stored_json) << stored_json.error().message;
  EXPECT_EQ(*stored_json, stored.kernel);
}

TEST_F(CoreLibraries, AnOwnKernelThatIsAsFastWins) {
  report("w", "130100");
  bench_.start({kernel_with_library()});
  work_off("w", "130100", {20, 19.99, 40, 20});
  ASSERT_EQ(bench_.kernels.size(), 1u);
  EXPECT_EQ(bench_.kernels[0].kernel.schedule, "cpu.pointwise vector=3");
  EXPECT_FALSE(bench_.kernels[0].kernel.fallback);
}

TEST_F(CoreLibraries, WithoutAnOwnKernelNothingWins) {
  report("w", "130100");
  bench_.start({kernel_with_library()});
  const Job job = bench_.job_of("w");
  ASSERT_EQ(job.candidates.size(), 4u);
  report("w", "130100",
         {result(job, 0, 20), result(job, 1, 10), bad_result(job, 2, Verdict::kWrongResult),
          bad_result(job, 3, Verdict::kWrongResult)});
  const Answer answer = bench_.one<Answer>();
  ASSERT_FALSE(answer.reply.outcome);
  EXPECT_NE(answer.reply.outcome.error().message.find("2 wrong_result"), std::string::npos)
      << answer.reply.outcome.error().message;
}

TEST_F(CoreLibraries, WhereNoWorkerHasItItsCandidatesAreAsIfTheyHadNotBeenListed) {
  report("w", "");
  bench_.start({kernel_with_library()});
  work_off("w", "", {0, 0, 40, 30});
  ASSERT_EQ(bench_.kernels.size(), 1u);
  const KernelReport& said = bench_.kernels[0].kernel.report;
  EXPECT_EQ(said.candidates, 2);
  EXPECT_EQ(said.rejected, 0);
  EXPECT_EQ(said.first_us, 40);
  EXPECT_EQ(bench_.programs.size(), 1u) << "and the program is stored";
}

TEST_F(CoreLibraries, WhenItsLastWorkerLeavesTheOthersGoOnWithoutIt) {
  report("has", "130100");
  bench_.start({kernel_with_library()});
  bench_.take<SendOrders>();
  bench_.step(WorkerGone{"has"});
  report("bare", "");
  bench_.tick(100);
  work_off("bare", "", {0, 0, 40, 30});
  ASSERT_EQ(bench_.kernels.size(), 1u);
  EXPECT_EQ(bench_.kernels[0].kernel.schedule, "cpu.pointwise vector=3");
}

TEST_F(CoreLibraries, AFinalIsRacedWhereTheVersionIsThatWasScreened) {
  report("has", "130100");
  bench_.start({kernel_with_library()});
  const Job job = bench_.job_of("has");
  report("other", "120900");
  std::vector<CandidateResult> results;
  for (const int i : indices(job)) results.push_back(result(job, i, 10 + 0.01 * i));
  report("has", "130100", std::move(results));
  int finals = 0;
  for (const SendOrders& orders : bench_.take<SendOrders>())
    for (const Job& given : orders.orders.jobs) {
      EXPECT_EQ(orders.worker, "has");
      finals += given.kind == Job::Kind::kFinal;
    }
  EXPECT_EQ(finals, 1);
}

// Its runner refuses the calls, which is their verdict and not the end of the search.
TEST_F(CoreLibraries, AFinalThatOnlyAnotherVersionCanRaceIsWonByAnOwnKernel) {
  report("has", "130100");
  bench_.start({kernel_with_library()});
  const Job job = bench_.job_of("has");
  std::vector<CandidateResult> results;
  for (const int i : indices(job)) results.push_back(result(job, i, 10 + 0.01 * i));
  report("has", "130100", std::move(results));
  bench_.take<SendOrders>();
  bench_.store_all();
  bench_.step(WorkerGone{"has"});
  report("other", "120900");
  for (Job next = bench_.job_of("other"); next.lease != 0; next = bench_.job_of("other")) {
    std::vector<CandidateResult> answers;
    for (const CandidateJob& candidate : next.candidates)
      answers.push_back(candidate.schedule.template_name == kTemplate
                            ? bad_result(next, candidate.index, Verdict::kCompileFailed)
                            : result(next, candidate.index, 10));
    report("other", "120900", std::move(answers));
    auto orders = bench_.take<SendOrders>();
    bench_.store_all();
    for (auto& each : orders) bench_.done.emplace_back(std::move(each));
  }
  ASSERT_EQ(bench_.kernels.size(), 1u);
  EXPECT_TRUE(bench_.kernels[0].kernel.schedule.starts_with("cpu.pointwise"));
}

TEST_F(CoreLibraries, ADroppedOwnKernelIsBuiltAgainToStandBeside) {
  report("w", "130100");
  bench_.start({kernel_with_library()});
  const Job job = bench_.job_of("w");
  std::vector<CandidateResult> results;
  for (const int i : indices(job)) results.push_back(result(job, i, i < 2 ? 10 : 40));
  for (CandidateResult& each : results)
    if (each.index >= 2) each.binary.clear(), each.recipe_json.clear();  // lost its race
  report("w", "130100", std::move(results));
  work_off("w", "130100", {10, 10, 40, 40});
  ASSERT_FALSE(kinds_.empty());
  EXPECT_EQ(kinds_.front(), Job::Kind::kCompile);
  ASSERT_EQ(bench_.kernels.size(), 1u);
  ASSERT_TRUE(bench_.kernels[0].kernel.fallback);
}

}  // namespace
}  // namespace kiln
