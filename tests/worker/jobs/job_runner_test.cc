// The job_runner with a real compiler and a real runner: from leases to results.
#include "worker/jobs/job_runner.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"
#include "tests/worker/kernels.h"

namespace kiln {
namespace {

using namespace test;

class JobRunnerTest : public ::testing::Test {
 protected:
  JobRunnerTest() : bench_(options(), pool_, callbacks()) {
    Workload workload{parse_graph(kAddGraph).value(), Family::kPointwise, {}};
    const auto schedules = search_space(workload, host_cpu_target());
    EXPECT_TRUE(schedules.has_value());
    if (schedules) schedules_ = *schedules;
  }

  JobRunner::Options options() { return {{runner_path(), 2, {}}, lock_path()}; }
  Path lock_path() const { return dir_.path() / "lock"; }
  JobRunner::Callbacks callbacks() {
    return {[this](uint64_t) { ++steps_; },
            [this](CandidateResult result) {
              const std::lock_guard lock(mu_);
              results_.push_back(std::move(result));
              changed_.notify_all();
            },
            [this](double calibration_us, int device_errors) {
              const std::lock_guard lock(mu_);
              calibration_us_ = calibration_us;
              device_errors_ = device_errors;
              changed_.notify_all();
            }};
  }
  Job job_of(uint64_t lease, size_t candidates, Job::Kind kind = Job::Kind::kScreen) {
    Job job = add_job(kind);
    job.lease = lease;
    job.policy.race_runs = 4;
    job.policy.screen_drop = job.policy.race_drop = 1e9;  // a busy machine drops nobody
    for (size_t i = 0; i < candidates; ++i)
      job.candidates.push_back({static_cast<int>(i), schedules_[i % schedules_.size()], "", ""});
    return job;
  }
  // Waits for `count` results.
  std::vector<CandidateResult> results(size_t count) {
    std::unique_lock lock(mu_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60),
                                  [&] { return results_.size() >= count; }));
    return results_;
  }

  TempDir dir_ = TempDir::create().value();
  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<CandidateResult> results_;  // guarded by mu_
  double calibration_us_ = 0;             // guarded by mu_
  int device_errors_ = -1;                // guarded by mu_
  std::atomic<int> steps_ = 0;
  std::vector<Schedule> schedules_;
  CompilePool pool_{host_toolchain(compiler()), 2, std::nullopt};
  JobRunner bench_;
};

TEST_F(JobRunnerTest, ScreensEveryCandidateOfItsLeases) {
  bench_.submit({job_of(1, 2), job_of(2, 1)});
  for (const CandidateResult& result : results(3)) {
    EXPECT_EQ(result.verdict, Verdict::kOk) << result.log;
    EXPECT_EQ(result.epoch, 1u);
    EXPECT_EQ(result.kernel_key, Digest::of("a kernel"));
    EXPECT_FALSE(result.measurement.samples_us.empty());
    EXPECT_TRUE(recipe_from_json(result.recipe_json).has_value());
  }
  EXPECT_GE(steps_, 3);
}

TEST_F(JobRunnerTest, TellsAfterALeaseHowItsDeviceIs) {
  bench_.submit({job_of(1, 1)});
  results(1);
  std::unique_lock lock(mu_);
  ASSERT_TRUE(
      changed_.wait_for(lock, std::chrono::seconds(60), [&] { return calibration_us_ > 0; }));
  // 65,536 dependent multiply-adds of some four cycles, at 0.5 to 8 GHz.
  EXPECT_GT(calibration_us_, 65'536 * 3 / 8e3);
  EXPECT_EQ(device_errors_, 0);
}

TEST_F(JobRunnerTest, FinalistsComeBackWithTheirTimes) {
  bench_.submit({job_of(1, 2)});
  const auto screened = results(2);
  Job job = job_of(2, 0, Job::Kind::kFinal);
  for (const CandidateResult& result : screened)
    if (!result.binary.empty())
      job.candidates.push_back({result.index, {}, result.recipe_json, result.binary});
  ASSERT_FALSE(job.candidates.empty());
  const size_t finalists = job.candidates.size();
  bench_.submit({std::move(job)});
  const auto all = results(2 + finalists);
  for (size_t i = 2; i < all.size(); ++i) {
    EXPECT_EQ(all[i].verdict, Verdict::kOk) << all[i].log;
    EXPECT_FALSE(all[i].compiled);
    EXPECT_GT(all[i].measurement.median_us(), 0);
  }
}

TEST_F(JobRunnerTest, CompileJobsComeBackWithBinariesAndNoTimes) {
  bench_.submit({job_of(1, 1, Job::Kind::kCompile)});
  const auto done = results(1);
  EXPECT_EQ(done[0].verdict, Verdict::kOk) << done[0].log;
  EXPECT_TRUE(done[0].compiled);
  EXPECT_FALSE(done[0].binary.empty());
  EXPECT_TRUE(done[0].measurement.samples_us.empty());
}

TEST_F(JobRunnerTest, WhatCannotBeLoweredFailsToCompile) {
  Job job = job_of(1, 1);
  job.workload_text = "not a graph";
  bench_.submit({std::move(job), job_of(2, 1)});
  for (const CandidateResult& result : results(2))
    EXPECT_EQ(result.verdict, result.lease == 1 ? Verdict::kCompileFailed : Verdict::kOk)
        << result.log;
}

TEST_F(JobRunnerTest, NothingIsTimedWhileAnotherWorkerMeasures) {
  auto other = FileLock::acquire(lock_path(), FileLock::Mode::kShared);  // compiles: we may too
  ASSERT_TRUE(other.has_value());
  bench_.submit({job_of(1, 1)});
  while (steps_ == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  {
    const std::lock_guard lock(mu_);
    EXPECT_TRUE(results_.empty());
  }
  other = fail(Code::kUnavailable, "done");
  EXPECT_EQ(results(1)[0].verdict, Verdict::kOk);
}

TEST_F(JobRunnerTest, ADroppedLeaseGivesNoResultsAndTheNextOneRuns) {
  auto other = FileLock::acquire(lock_path(), FileLock::Mode::kShared);
  bench_.submit({job_of(1, 2)});
  while (steps_ < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  bench_.drop(1);
  other = fail(Code::kUnavailable, "done");
  bench_.submit({job_of(2, 1)});
  EXPECT_EQ(results(1)[0].lease, 2u);
}

TEST_F(JobRunnerTest, StoppingInTheMiddleReturnsWithoutResults) {
  bench_.submit({job_of(1, 4)});
  bench_.stop();
  const size_t count = results_.size();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(results_.size(), count);
}

// The host's compiler; the second thing that it is asked for waits until `gate` opens.
class GatedTool final : public CompileTool {
 public:
  GatedTool(std::shared_future<void> gate, std::shared_ptr<std::atomic<int>> asked)
      : gate_(std::move(gate)), asked_(std::move(asked)) {}
  Result<Object> compile(const Source& source, const Target& target, int64_t timeout_ms) override {
    if ((*asked_)++ == 1) gate_.wait();
    TRY(Artifact artifact, compiler().compile(source, target, timeout_ms));
    return Object{std::move(artifact.binary), {}};
  }

 private:
  std::shared_future<void> gate_;
  std::shared_ptr<std::atomic<int>> asked_;
};

TEST_F(JobRunnerTest, WhereCompilingDisturbsNothingAJobThatWaitsForItGivesWay) {
  std::promise<void> opened;
  const std::shared_future<void> gate = opened.get_future();
  const auto asked = std::make_shared<std::atomic<int>>(0);
  CompilePool pool(
      {"gated", [](const Source& source, const Target&) { return Digest::of(source.text); },
       [&] { return std::make_unique<GatedTool>(gate, asked); }},
      2, std::nullopt);
  JobRunner::Options as_on_a_gpu = options();
  as_on_a_gpu.compiling_disturbs = false;
  JobRunner runner(as_on_a_gpu, pool, callbacks());
  ASSERT_GE(schedules_.size(), 3u);
  runner.submit({job_of(1, 2)});  // one of its candidates, whichever comes second, waits
  while (*asked < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  Job other = job_of(2, 1);
  other.candidates[0].schedule = schedules_[2];  // neither of those
  runner.submit({std::move(other)});
  const auto early = results(2);
  EXPECT_TRUE(std::ranges::any_of(early, [](const auto& r) { return r.lease == 2; }));
  opened.set_value();
  for (const CandidateResult& result : results(3))
    EXPECT_EQ(result.verdict, Verdict::kOk) << result.log;
  runner.stop();
}

// A kernel finds nothing that another user's kernel, or another worker's binary, left open in its
// process.
TEST_F(JobRunnerTest, TheRunnerOfACustomKernelOrOfAnothersBinaryEndsWithItsJob) {
  const Artifact nosy =
      compile_kernel(std::string(kRight) + "if (found) out[first] = 1e9;",
                     "extern \"C\" { int dup2(int, int); int fcntl(int, int, ...); }\n"
                     "static bool found;\n"
                     "__attribute__((constructor)) static void at_load() {\n"
                     "  found = fcntl(777, 1) >= 0;\n"
                     "  dup2(1, 777);\n"
                     "}\n");
  for (const uint64_t lease : {1, 2, 3, 4}) {
    Job job = add_job(Job::Kind::kFinal);
    job.lease = lease;
    job.kernel_key = Digest::of(std::to_string(lease));
    job.family = lease <= 2 ? Family::kCustom : Family::kPointwise;
    job.candidates.push_back({0, {}, recipe_to_json(nosy.recipe), nosy.binary});
    bench_.submit({job});
    const auto known = results(lease);
    ASSERT_EQ(known.size(), lease);
    EXPECT_EQ(known.back().verdict, Verdict::kOk) << known.back().log;
  }
}

}  // namespace
}  // namespace kiln
