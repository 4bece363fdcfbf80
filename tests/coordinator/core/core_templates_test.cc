// Kernel templates at versions: which worker gets which candidates, what becomes of candidates that
// no worker can make, and what is planned again when a template changed.
#include "compiler_core/base/file.h"
#include "compiler_core/program/cubin_resources.h"
#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

const TemplateVersions kNow = {{"cpu.pointwise", 2}, {"cpu.vector", 1}};
const TemplateVersions kBefore = {{"cpu.pointwise", 1}, {"cpu.vector", 1}};

CoreOptions options_now() {
  CoreOptions options;
  options.templates = kNow;
  options.batch_size = 2;
  return options;
}

// Candidates 0 and 2 are of one template, 1 and 3 of the other.
PlannedKernel kernel_of_two_templates(const std::string& name = "k") {
  PlannedKernel planned = planned_kernel(name, 4);
  for (const size_t i : {1, 3}) planned.schedules[i].template_name = "cpu.vector";
  planned.templates = kNow;
  return planned;
}

class CoreTemplates : public ::testing::Test {
 protected:
  void report(const WorkerId& worker, const TemplateVersions& templates,
              std::vector<LeaseState> leases = {}, std::vector<CandidateResult> results = {}) {
    auto& known = lists_[worker];
    if (known == nullptr || *known != templates)
      known = std::make_shared<const TemplateVersions>(templates);
    bench_.step(ReportReceived{
        worker, bench_.report_of(worker, std::move(leases), std::move(results)), known});
  }
  // Hands over every candidate of `job`; each takes 10 us for each index, and 10 more.
  void finish(const WorkerId& worker, const TemplateVersions& templates, const Job& job) {
    std::vector<CandidateResult> results;
    for (const int i : indices(job)) results.push_back(ok_result(job, i, 10.0 * (i + 1)));
    report(worker, templates, {}, std::move(results));
  }
  // As long as workers of another build are waited for; `worker` lives.
  void wait_for_grace(const WorkerId& worker, const TemplateVersions& templates) {
    const CoreOptions usual;
    for (int64_t ms = 0; ms <= usual.worker_grace_ms + 1'000; ms += 1'000) {
      bench_.tick(1'000);
      report(worker, templates);
    }
  }
  // Finishes all jobs of `worker`, and stores what is to be stored, until there are none.
  void work_off(const WorkerId& worker, const TemplateVersions& templates) {
    for (Job job = bench_.job_of(worker); job.lease != 0; job = bench_.job_of(worker)) {
      finish(worker, templates, job);
      auto answers = bench_.take<SendOrders>();
      bench_.store_all();
      for (auto& orders : answers) bench_.done.emplace_back(std::move(orders));
    }
  }

  CoreBench bench_{options_now()};
  std::map<WorkerId, std::shared_ptr<const TemplateVersions>> lists_;
};

TEST_F(CoreTemplates, ACandidateGoesOnlyWhereItsTemplateIs) {
  report("old", kBefore);
  report("new", kNow);
  bench_.start({kernel_of_two_templates()});
  std::map<WorkerId, std::vector<int>> leased;
  for (const SendOrders& orders : bench_.take<SendOrders>())
    for (const Job& job : orders.orders.jobs) leased[orders.worker] = indices(job);
  for (const int i : leased["old"]) EXPECT_EQ(i % 2, 1) << "of another version there";
  EXPECT_FALSE(leased["old"].empty()) << "the versions that they share are leased to it";
  EXPECT_FALSE(leased["new"].empty());
}

TEST_F(CoreTemplates, AWorkerThatNamesNoneGetsNothing) {
  bench_.report("silent");
  bench_.start({kernel_of_two_templates()});
  EXPECT_EQ(bench_.job_of("silent").lease, 0u);
}

TEST_F(CoreTemplates, ARecordNamesTheVersion) {
  report("w", kNow);
  bench_.start({kernel_of_two_templates()});
  finish("w", kNow, bench_.job_of("w"));
  bench_.store_all();
  ASSERT_FALSE(bench_.records.empty());
  for (const TuningRecord& record : bench_.records)
    EXPECT_EQ(record.template_version, find_version(kNow, record.schedule.template_name));
}

// The sums of the cubin are cubin_resources_test's.
TEST_F(CoreTemplates, ARecordOfAGpusCompileSaysWhatTheKernelTakes) {
  report("w", kNow);
  bench_.start({kernel_of_two_templates()});
  const Job job = bench_.job_of("w");
  std::vector<CandidateResult> results;
  for (const int i : indices(job)) results.push_back(ok_result(job, i, 10.0));
  results.front().binary =
      read_file(
          Path(KILN_SOURCE_DIR "/tests/compiler_core/program/cubins/two_kernels.sm_90a.cubin"))
          .value();
  report("w", kNow, {}, std::move(results));
  bench_.store_all();
  ASSERT_EQ(bench_.records.size(), 2u);
  EXPECT_EQ(parse_cubin_resources(bench_.records[0].log), (CubinResources{32, 1456, 2048}));
  EXPECT_EQ(bench_.records[1].log, "") << "no cubin";
}

// Else it would wait for ever: it is kept from a worker that it failed on while others can have it.
TEST_F(CoreTemplates, WhatFailedOnTheOnlyWorkerWithItsTemplateIsTriedThereAgain) {
  report("new", kNow);
  report("old", kBefore);
  PlannedKernel planned = planned_kernel("k", 1);
  planned.templates = kNow;
  bench_.start({planned});
  const Job job = bench_.job_of("new");
  ASSERT_EQ(indices(job), std::vector<int>{0});
  report("new", kNow, {}, {bad_result(job, 0, Verdict::kRunnerDied)});
  EXPECT_EQ(indices(bench_.job_of("new")), std::vector<int>{0});
}

TEST_F(CoreTemplates, AWorkerThatComesInTimeGetsWhatTheOthersCannotMake) {
  report("old", kBefore);
  bench_.start({kernel_of_two_templates()});
  work_off("old", kBefore);
  for (int i = 0; i < 5; ++i) {
    bench_.tick(1'000);
    report("old", kBefore);
  }
  EXPECT_TRUE(bench_.none<Answer>());
  report("new", kNow);
  EXPECT_EQ(indices(bench_.job_of("new")), std::vector<int>{0});
}

// Workers of an earlier build, and no others: what they can make is answered, not kept for good.
TEST_F(CoreTemplates, WhatNoWorkerCanMakeIsLeftOutAfterAWhileAndIsNoLastWord) {
  report("old", kBefore);
  bench_.start({kernel_of_two_templates()});
  work_off("old", kBefore);
  EXPECT_TRUE(bench_.none<Answer>());
  wait_for_grace("old", kBefore);
  work_off("old", kBefore);
  bench_.store_all();
  const Answer answer = bench_.one<Answer>();
  ASSERT_TRUE(answer.reply.outcome) << answer.reply.outcome.error().message;
  EXPECT_TRUE(answer.reply.memory_only);
  ASSERT_EQ(bench_.kernels.size(), 1u);
  EXPECT_EQ(bench_.kernels[0].kernel.schedule, "cpu.vector vector=1");
  EXPECT_EQ(bench_.kernels[0].kernel.templates, (TemplateVersions{{"cpu.vector", 1}}));
  EXPECT_TRUE(bench_.programs.empty()) << "the next plan tries again";
  EXPECT_FALSE(bench_.none<KeepProgram>());
}

TEST_F(CoreTemplates, WhereNothingIsLeftItFailsByName) {
  report("old", kBefore);
  PlannedKernel planned = planned_kernel("k", 2);
  planned.templates = kNow;
  bench_.start({planned});
  wait_for_grace("old", kBefore);
  const Answer answer = bench_.one<Answer>();
  ASSERT_FALSE(answer.reply.outcome);
  EXPECT_EQ(answer.reply.outcome.error().code, Code::kUnavailable);
  EXPECT_NE(answer.reply.outcome.error().message.find("no worker has cpu.pointwise 2"),
            std::string::npos)
      << answer.reply.outcome.error().message;
}

TEST_F(CoreTemplates, AStragglerIsHelpedOnlyByWhoHasTheTemplate) {
  report("new", kNow);
  PlannedKernel planned = planned_kernel("k", 5);
  planned.templates = kNow;
  bench_.start({planned});
  for (int i = 0; i < 4; ++i) {
    const Job job = bench_.job_of("new");
    bench_.now_ms += 100;
    finish("new", kNow, job);
  }
  const Job last = bench_.job_of("new");
  report("new", kNow, {{last.lease, last.epoch, 0}});
  report("old", kBefore);
  bench_.take<SendOrders>();
  bench_.tick(5'000);
  EXPECT_EQ(bench_.job_of("old").lease, 0u);
  report("new", kNow, {{last.lease, last.epoch, 0}});
  report("second", kNow);
  bench_.tick(100);
  EXPECT_EQ(indices(bench_.job_of("second")), indices(last));
}

// The planner finds every kernel: nothing needs a worker.
TEST_F(CoreTemplates, AStaleProgramIsPlannedAgainAndNeedsNoWorkerWhereItsKernelsAreGood) {
  const CompileRequest request = bench_.ask("c", 1);
  bench_.fleet_is_back();
  bench_.step(ProgramLookedUp{bench_.key(), "", {}, true});
  EXPECT_FALSE(bench_.none<AskForGraph>());
  bench_.upload("c", request);
  PlannedKernel planned = kernel_of_two_templates();
  planned.cached.emplace();
  planned.cached->key = planned.key;
  planned.cached->templates = kNow;
  bench_.plan({planned});
  bench_.store_all();
  EXPECT_TRUE(bench_.one<Answer>().reply.outcome);
  EXPECT_EQ(bench_.programs.size(), 1u);
}

// What is stale is tuned; the kernel beside it is reused as it is.
TEST_F(CoreTemplates, OfAStaleProgramOnlyTheStaleKernelIsTuned) {
  report("w", kNow);
  PlannedKernel good = kernel_of_two_templates("good"), stale = kernel_of_two_templates("stale");
  good.cached.emplace();
  good.cached->key = good.key;
  good.cached->schedule = "cpu.vector vector=3";
  good.cached->templates = kNow;
  bench_.start({good, stale});
  work_off("w", kNow);
  bench_.store_all();
  ASSERT_EQ(bench_.kernels.size(), 1u);
  EXPECT_EQ(bench_.kernels[0].kernel.key, stale.key);
  EXPECT_EQ(bench_.kernels[0].kernel.templates, kNow);
  ASSERT_EQ(bench_.programs.size(), 1u);
  EXPECT_EQ(bench_.programs[0].kernels[0].schedule, good.cached->schedule);
}

}  // namespace
}  // namespace kiln
