// What of a job is measured, with a compiler that says of each candidate what the test wants.
#include "worker/jobs/running_job.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"
#include "tests/worker/kernels.h"

namespace kiln {
namespace {

using namespace test;

// The host's compiler; the n-th compile is said to need the n-th resources.
class TellingTool final : public CompileTool {
 public:
  TellingTool(std::vector<KernelResources> resources, std::optional<Error> error)
      : resources_(std::move(resources)), error_(std::move(error)) {}
  Result<Object> compile(const Source& source, const Target& target, int64_t timeout_ms) override {
    if (error_) return fail(*error_);
    TRY(Artifact artifact, compiler().compile(source, target, timeout_ms));
    const size_t n = compiles_++;
    return Object{std::move(artifact.binary),
                  n < resources_.size() ? resources_[n] : KernelResources{}};
  }

 private:
  std::vector<KernelResources> resources_;
  std::optional<Error> error_;  // instead of every object
  size_t compiles_ = 0;
};

class RunningJobTest : public ::testing::Test {
 protected:
  void SetUp() override {
    schedules_ =
        search_space({parse_graph(kAddGraph).value(), Family::kPointwise, {}}, host_cpu_target())
            .value();
    ASSERT_GE(schedules_.size(), 2u);
  }
  // Runs a screening of these schedules, by number.
  std::vector<CandidateResult> screen(const std::vector<size_t>& schedules,
                                      std::vector<KernelResources> resources = {},
                                      std::optional<Error> error = {}) {
    Job job = add_job();
    job.policy.race_runs = 4;
    job.policy.screen_drop = job.policy.race_drop = 1e9;
    for (size_t i = 0; i < schedules.size(); ++i)
      job.candidates.push_back({static_cast<int>(i), schedules_[schedules[i]], "", ""});
    CompilePool pool(
        {"telling", [](const Source& source, const Target&) { return Digest::of(source.text); },
         [&] { return std::make_unique<TellingTool>(resources, error); }},
        1, std::nullopt);
    results_.clear();
    const RunningJob::Callbacks callbacks{
        [](uint64_t) {}, [&](CandidateResult result) { results_.push_back(std::move(result)); },
        [](uint64_t) { return false; }};
    CandidateLowering lowering({runner_path(), 1, {}});
    RunningJob leased(std::move(job), lowering, pool, callbacks);
    leased.start_compiling();
    leased.measure(runner_, known_, [] { return false; });
    std::ranges::sort(results_, {}, &CandidateResult::index);
    return results_;
  }

  std::vector<Schedule> schedules_;
  RunnerProcess runner_{{runner_path(), 1, {}}};
  KnownEvaluations known_;
  std::vector<CandidateResult> results_;
};

TEST_F(RunningJobTest, ASpillingCandidateIsNotMeasuredBesideOneThatDoesNot) {
  const auto results = screen({0, 1}, {{32, 120, 88, 0}, {}});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].verdict, Verdict::kCompileFailed);
  EXPECT_NE(results[0].log.find("spills 120 bytes of registers"), std::string::npos)
      << results[0].log;
  EXPECT_TRUE(results[0].measurement.samples_us.empty());
  EXPECT_EQ(results[1].verdict, Verdict::kOk) << results[1].log;
}

TEST_F(RunningJobTest, SoIsOneThatKeepsArraysInLocalMemory) {
  const auto results = screen({0, 1}, {{}, {32, 0, 256, 0}});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[1].verdict, Verdict::kCompileFailed);
  EXPECT_NE(results[1].log.find("256 bytes in local memory"), std::string::npos) << results[1].log;
}

TEST_F(RunningJobTest, WhereAllSpillAllAreMeasured) {
  for (const auto& result : screen({0, 1}, {{32, 120, 88, 0}, {32, 8, 8, 0}})) {
    EXPECT_EQ(result.verdict, Verdict::kOk) << result.log;
    EXPECT_FALSE(result.measurement.samples_us.empty());
  }
}

// A full disk fails every candidate at every try, and a kernel is convicted for runners' deaths.
TEST_F(RunningJobTest, ACompilerThatCouldNotIsTheWorkersFaultAndNoRunnersDeath) {
  const auto of = [this](Code code) { return screen({0}, {}, Error{code, "no space", 0}).at(0); };
  EXPECT_EQ(of(Code::kUnavailable).verdict, Verdict::kDeviceLost);
  EXPECT_EQ(of(Code::kDeadlineExceeded).verdict, Verdict::kTimedOut);
  EXPECT_EQ(of(Code::kInternal).verdict, Verdict::kCompileFailed);
}

TEST_F(RunningJobTest, EqualBinariesAreMeasuredOnce) {
  const auto results = screen({0, 0, 1});
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[1].verdict, Verdict::kOk);
  EXPECT_NE(results[1].log.find("the same binary as candidate 0"), std::string::npos);
  EXPECT_EQ(results[1].measurement.samples_us, results[0].measurement.samples_us);
  EXPECT_FALSE(results[1].binary.empty()) << "it may win as well";
  EXPECT_EQ(results[2].log, "");
}

TEST_F(RunningJobTest, ABinaryOfAnEarlierJobOfTheKernelIsNotMeasuredAgain) {
  const auto first = screen({0});
  const auto second = screen({1, 0});
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(second[0].log, "");
  EXPECT_NE(second[1].log.find("the same binary"), std::string::npos);
  EXPECT_EQ(second[1].measurement.samples_us, first[0].measurement.samples_us);
}

// The runner ends after others' code, and with it goes every reference it has made.
TEST_F(RunningJobTest, AFinalistThatWasBuiltHereIsNoOthersCode) {
  const CandidateResult built = screen({0}).at(0);
  ASSERT_FALSE(built.binary.empty());
  const auto is_others = [&](const std::string& binary) {
    Job job = add_job();
    job.kind = Job::Kind::kFinal;
    job.candidates.push_back({0, schedules_[0], built.recipe_json, binary});
    CompilePool pool({"none", [](const Source&, const Target&) { return Digest(); },
                      [] {
                        return std::make_unique<TellingTool>(std::vector<KernelResources>{},
                                                             std::nullopt);
                      }},
                     1, std::nullopt);
    const RunningJob::Callbacks callbacks{[](uint64_t) {}, [](const CandidateResult&) {},
                                          [](uint64_t) { return false; }};
    CandidateLowering lowering({runner_path(), 1, {}});
    RunningJob given(std::move(job), lowering, pool, callbacks);
    given.start_compiling();
    return given.runs_others_code(known_);
  };
  EXPECT_FALSE(is_others(built.binary));
  EXPECT_TRUE(is_others(built.binary + "changed"));
}

TEST(KnownEvaluations, RemembersWhatAnotherTryWouldNotChange) {
  KnownEvaluations known;
  const Digest kernel = Digest::of("kernel");
  Artifact artifact{add_recipe(), "binary", Digest::of("binary")};
  Evaluation evaluation;
  evaluation.verdict = Verdict::kRunnerDied;
  known.remember(kernel, artifact, {3, evaluation});
  EXPECT_EQ(known.find(kernel, artifact), nullptr);
  evaluation.verdict = Verdict::kWrongResult;
  known.remember(kernel, artifact, {3, evaluation});
  ASSERT_NE(known.find(kernel, artifact), nullptr);
  EXPECT_EQ(known.find(kernel, artifact)->candidate, 3);
  EXPECT_EQ(known.find(Digest::of("another kernel"), artifact), nullptr);
  artifact.recipe.phases[0].grid = 11;  // launched another way
  EXPECT_EQ(known.find(kernel, artifact), nullptr);
}

TEST(KnownEvaluations, ForgetsTheKernelsOfLongAgo) {
  KnownEvaluations known;
  const Artifact artifact{add_recipe(), "binary", Digest::of("binary")};
  for (int i = 0; i < 100; ++i) known.remember(Digest::of(std::to_string(i)), artifact, {});
  EXPECT_EQ(known.find(Digest::of("0"), artifact), nullptr);
  EXPECT_NE(known.find(Digest::of("99"), artifact), nullptr);
}

}  // namespace
}  // namespace kiln
