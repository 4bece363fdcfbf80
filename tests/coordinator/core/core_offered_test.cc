// Candidates that somebody offers: binaries that nobody builds, beside those of templates.
#include <algorithm>

#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

const TemplateVersions kWithOffered = {{"cpu.pointwise", 1}, {"offered", 1}};
const TemplateVersions kWithoutOffered = {{"cpu.pointwise", 1}};

OfferedKernel offered_kernel() {
  OfferedKernel offered;
  offered.name = "theirs";
  offered.target = cpu_target();
  offered.recipe.phases = {{"theirs", 7}};
  offered.binary = "their binary";
  return offered;
}

// Candidates 0 and 1 are Kiln's own, 2 is offered.
PlannedKernel kernel_with_offered() {
  PlannedKernel planned = planned_kernel("k", 2);
  const std::string name = offered_kernel().template_name();
  planned.schedules.push_back({name, {}});
  planned.templates = {{"cpu.pointwise", 1}, {name, 1}};
  planned.offered = {{name, offered_kernel()}};
  return planned;
}

class CoreOffered : public ::testing::Test {
 protected:
  void report(const WorkerId& worker, const TemplateVersions& templates,
              std::vector<CandidateResult> results = {}) {
    auto& known = lists_[worker];
    if (known == nullptr) known = std::make_shared<const TemplateVersions>(templates);
    bench_.step(ReportReceived{worker, bench_.report_of(worker, {}, std::move(results)), known});
  }
  // As a worker answers: what it was given it does not send back.
  static CandidateResult result(const Job& job, const CandidateJob& candidate, double us) {
    CandidateResult result = ok_result(job, candidate.index, us);
    if (!candidate.binary.empty()) result.binary.clear(), result.recipe_json.clear();
    return result;
  }
  void work_off(const WorkerId& worker, const std::vector<double>& times_us) {
    bench_.work_off(worker, [&](const Job& job) {
      std::vector<CandidateResult> results;
      for (const CandidateJob& each : job.candidates) {
        results.push_back(result(job, each, times_us[static_cast<size_t>(each.index)]));
        given_[each.index] = each;
      }
      report(worker, *lists_[worker], std::move(results));
    });
  }

  CoreBench bench_{[] {
    CoreOptions options;
    options.batch_size = 8;
    options.templates = kWithOffered;
    return options;
  }()};
  std::map<WorkerId, std::shared_ptr<const TemplateVersions>> lists_;
  std::map<int, CandidateJob> given_;
};

TEST_F(CoreOffered, TheFastestWinsWithItsBinaryAndRecipe) {
  report("w", kWithOffered);
  bench_.start({kernel_with_offered()});
  work_off("w", {40, 30, 10});
  EXPECT_EQ(given_[2].binary, "their binary");
  EXPECT_EQ(recipe_from_json(given_[2].recipe_json)->phases[0].entry, "theirs");
  ASSERT_EQ(bench_.kernels.size(), 1u);
  const StoreKernel& stored = bench_.kernels[0];
  EXPECT_EQ(stored.kernel.schedule, offered_kernel().template_name());
  EXPECT_EQ(stored.binary, "their binary");
  EXPECT_EQ(stored.kernel.recipe, offered_kernel().recipe);
  EXPECT_EQ(stored.kernel.templates, kernel_with_offered().templates);
  EXPECT_EQ(stored.kernel.provenance.measured.worker, "w");
  const auto read = kernel_from_json(kernel_to_json(stored.kernel));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, stored.kernel);
}

TEST_F(CoreOffered, ASlowerOneLosesAndIsKnownToHaveBeenTried) {
  report("w", kWithOffered);
  bench_.start({kernel_with_offered()});
  work_off("w", {40, 10, 30});
  ASSERT_EQ(bench_.kernels.size(), 1u);
  EXPECT_EQ(bench_.kernels[0].kernel.schedule, "cpu.pointwise vector=1");
  EXPECT_EQ(bench_.kernels[0].kernel.templates, kernel_with_offered().templates);
  EXPECT_TRUE(std::ranges::any_of(bench_.records, [](const TuningRecord& record) {
    return record.schedule.template_name == offered_kernel().template_name() &&
           record.template_version == 1;
  }));
}

TEST_F(CoreOffered, AWrongOneIsRejected) {
  report("w", kWithOffered);
  bench_.start({kernel_with_offered()});
  const Job job = bench_.job_of("w");
  std::vector<CandidateResult> results;
  for (const CandidateJob& each : job.candidates) results.push_back(result(job, each, 10));
  ASSERT_EQ(results.size(), 3u);
  results[2].verdict = Verdict::kWrongResult;
  report("w", kWithOffered, std::move(results));
  work_off("w", {20, 10, 0});
  ASSERT_EQ(bench_.kernels.size(), 1u);
  EXPECT_EQ(bench_.kernels[0].kernel.report.rejected, 1);
}

// A worker may not put other bytes in their place.
TEST_F(CoreOffered, BytesThatAWorkerSendsForItAreNone) {
  report("w", kWithOffered);
  bench_.start({kernel_with_offered()});
  const Job job = bench_.job_of("w");
  std::vector<CandidateResult> results;
  for (const CandidateJob& each : job.candidates) results.push_back(ok_result(job, each.index, 10));
  report("w", kWithOffered, std::move(results));
  bench_.store_all();
  ASSERT_FALSE(bench_.records.empty());
  EXPECT_TRUE(std::ranges::any_of(bench_.records, [](const TuningRecord& record) {
    return record.verdict == Verdict::kDeviceLost &&
           record.log.find("what it was given") != std::string::npos;
  }));
}

TEST_F(CoreOffered, AWorkerThatCannotTryItGetsTheOthers) {
  report("old", kWithoutOffered);
  bench_.start({kernel_with_offered()});
  const Job job = bench_.job_of("old");
  EXPECT_EQ(indices(job), (std::vector<int>{0, 1}));
}

// It counts as tried: the fleet may never have such a worker, and the program is not tuned for ever.
TEST_F(CoreOffered, WithoutAWorkerThatCanTryItTheOthersWin) {
  report("old", kWithoutOffered);
  bench_.start({kernel_with_offered()});
  const CoreOptions usual;
  for (int64_t ms = 0; ms <= usual.worker_grace_ms + 1'000; ms += 1'000) {
    work_off("old", {20, 10, 0});
    bench_.tick(1'000);
    report("old", kWithoutOffered);
  }
  work_off("old", {20, 10, 0});
  bench_.store_all();
  ASSERT_EQ(bench_.kernels.size(), 1u);
  EXPECT_EQ(bench_.kernels[0].kernel.schedule, "cpu.pointwise vector=1");
  EXPECT_EQ(bench_.kernels[0].kernel.templates, kernel_with_offered().templates);
}

}  // namespace
}  // namespace kiln
