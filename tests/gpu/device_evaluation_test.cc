// Kernels that misbehave in every way, tried in a real runner on the GPU: each gets its verdict,
// none is timed, so none can win, and a right one that comes after is still measured.
#include "worker/jobs/evaluation.h"

#include <fmt/format.h>

#include "tests/gpu/gpu_lab.h"

namespace kiln {
namespace {

constexpr int64_t kElements = 10'000;
constexpr char kAddGraph[] =
    "kiln.graph 1\n"
    "%0 = input 0 : f32[10000]\n"
    "%1 = input 1 : f32[10000]\n"
    "%2 = add %0 %1 : f32[10000]\n"
    "return %2\n";

// Of thread `i`.
constexpr char kRight[] = "if (i < n) out[i] = a[i] + b[i];";

struct Misbehaviour {
  const char* name;
  Verdict verdict;
  const char* log;   // what the log must say
  const char* body;  // besides kRight, or instead when it has an `out[i] =`
};

const Misbehaviour kMisbehaviours[] = {
    {"wrong_element", Verdict::kWrongResult, "element 5170 [5170] is",
     "if (i < n) out[i] = a[i] + b[i] + (i == 5170 ? 1 : 0);"},
    {"wrong_everywhere", Verdict::kWrongResult, "10000 of 10000 elements are wrong",
     "if (i < n) out[i] = 100;"},
    {"not_a_number", Verdict::kWrongResult, "element 3 [3] is nan",
     "if (i < n) out[i] = i == 3 ? 0 * (1 / (a[i] - a[i])) : a[i] + b[i];"},
    {"leaves_the_last_unwritten", Verdict::kWrongResult, "element 9999 [9999] is nan, expected",
     "if (i < n - 1) out[i] = a[i] + b[i];"},
    {"writes_nothing", Verdict::kWrongResult, "left unwritten", "if (i < 0) out[i] = 0;"},
    {"keeps_what_was_there", Verdict::kWrongResult, "element 8 ",
     "if (i < n && i != 8) out[i] = a[i] + b[i];"},
    {"one_before", Verdict::kOutOfBounds, "wrote 1 bytes before output 0",
     "if (i == 0) out[-1] = 1;"},
    {"one_behind", Verdict::kOutOfBounds, "wrote 0 bytes behind output 0",
     "if (i == 0) out[n] = 1;"},
    {"behind_an_input", Verdict::kOutOfBounds, "behind input 1", "if (i == 0) b[n + 3] = 1;"},
    {"before_the_workspace", Verdict::kOutOfBounds, "before workspace",
     "if (i == 0) workspace[-1] = 1;"},
    {"writes_an_input", Verdict::kOutOfBounds, "wrote into input 0 at element 41",
     "if (i == 41) a[i] += 1;"},
    {"far_away", Verdict::kOutOfBounds, "ILLEGAL_ADDRESS", "if (i == 0) out[1l << 38] = 1;"},
    {"null", Verdict::kOutOfBounds, "ILLEGAL_ADDRESS",
     "if (i == 0) *reinterpret_cast<volatile float*>(workspace - workspace) = 1;"},
    {"never_ends", Verdict::kTimedOut, "killed",
     "if (i == 0) for (volatile float* p = out; *p != 12345.0f;) *p = 1;"},
};

class DeviceEvaluationTest : public test::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFailure()) return;
    RunnerProcess::Options options;
    options.executable = lab_->flags().runner;
    options.arguments = {"--device", fmt::format("cuda:{}", lab_->flags().ordinal)};
    if (!lab_->flags().libcuda.empty())
      options.arguments.insert(options.arguments.end(), {"--libcuda", lab_->flags().libcuda});
    options.prepare = [this] {
      const Artifact& utility = lab_->utility_kernels();
      return runner::PrepareDevice{utility.binary, utility.digest};
    };
    runner_.emplace(std::move(options));
    job_.lease = 1;
    job_.epoch = 1;
    job_.kind = Job::Kind::kScreen;
    job_.kernel_key = Digest::of("a kernel");
    job_.target = lab_->device()->facts().target();
    job_.workload_text = kAddGraph;
    job_.seed = 7;
    job_.policy.launch_timeout_ms = 1500;
    job_.policy.race_runs = 5;
    right_ = compile(kRight);
  }

  Artifact compile(const std::string& body) const {
    const TensorSpec spec{DType::kF32, {kElements}};
    Recipe recipe{{spec, spec}, {spec}, {{"kernel", (kElements + 255) / 256, 256, 1, 0}}, 256, 0};
    const bool whole = body.find("out[i] =") != std::string::npos;
    return lab_->compile(
        "KILN_KERNEL(256, 1) kernel(float* a, float* b, float* out, char* workspace) {\n"
        "  const long i = block_index() * 256l + thread_index(), n = 10000;\n"
        "  if (i == 0) workspace[0] = 0;\n" +
            (whole ? "" : std::string(kRight)) + body + "\n}\n",
        recipe);
  }

  void expect_right_kernel_still_runs() {
    const Evaluation evaluation = evaluate_candidate(*runner_, job_, right_, 0);
    EXPECT_EQ(evaluation.verdict, Verdict::kOk) << evaluation.log;
    // As many as the budget leaves time for.
    EXPECT_GE(evaluation.measurement.samples_us.size(), 3u);
    EXPECT_LE(evaluation.measurement.samples_us.size(), 5u);
    EXPECT_GT(evaluation.measurement.median_us(), 0);
  }

  std::optional<RunnerProcess> runner_;
  Job job_;
  Artifact right_;
};

TEST_F(DeviceEvaluationTest, ARightKernelIsVerifiedAndTimed) {
  expect_right_kernel_still_runs();
}

TEST_F(DeviceEvaluationTest, EveryMisbehaviourHasItsVerdictAndHarmsNobodyElse) {
  for (const Misbehaviour& bad : kMisbehaviours) {
    SCOPED_TRACE(bad.name);
    const Evaluation evaluation = evaluate_candidate(*runner_, job_, compile(bad.body), 0);
    EXPECT_EQ(evaluation.verdict, bad.verdict) << evaluation.log;
    EXPECT_NE(evaluation.log.find(bad.log), std::string::npos) << evaluation.log;
    EXPECT_TRUE(evaluation.measurement.samples_us.empty()) << "it could have won";
    expect_right_kernel_still_runs();
  }
}

TEST_F(DeviceEvaluationTest, AFaultCostsOneRunnerAndTheOthersVerdictsKeepTheirs) {
  expect_right_kernel_still_runs();
  const pid_t before = runner_->pid();
  EXPECT_EQ(evaluate_candidate(*runner_, job_, compile("if (i == 0) out[n] = 1;"), 0).verdict,
            Verdict::kOutOfBounds);
  EXPECT_EQ(runner_->pid(), before) << "a guard zone costs nothing";
  EXPECT_EQ(
      evaluate_candidate(*runner_, job_, compile("if (i == 0) out[1l << 38] = 1;"), 0).verdict,
      Verdict::kOutOfBounds);
  EXPECT_EQ(runner_->pid(), 0) << "a fault ends the runner";
  expect_right_kernel_still_runs();
}

TEST_F(DeviceEvaluationTest, ASlowKernelLosesTheRaceAfterTheScreen) {
  const Evaluation evaluation =
      evaluate_candidate(*runner_, job_, right_, 1e-6);  // an incumbent nobody beats
  EXPECT_EQ(evaluation.verdict, Verdict::kOk) << evaluation.log;
  EXPECT_TRUE(evaluation.dropped);
  EXPECT_EQ(evaluation.measurement.samples_us.size(), static_cast<size_t>(job_.policy.screen_runs));
}

TEST_F(DeviceEvaluationTest, ADamagedBinaryIsNeverLoaded) {
  Artifact damaged = right_;
  damaged.binary[damaged.binary.size() / 2] ^= 1;
  EXPECT_EQ(evaluate_candidate(*runner_, job_, damaged, 0).verdict, Verdict::kRunnerDied);
  damaged.binary = "not a cubin";
  damaged.digest = Digest::of(damaged.binary);
  EXPECT_EQ(evaluate_candidate(*runner_, job_, damaged, 0).verdict, Verdict::kCompileFailed);
  damaged = right_;
  damaged.recipe.phases[0].entry = "elsewhere";
  EXPECT_EQ(evaluate_candidate(*runner_, job_, damaged, 0).verdict, Verdict::kCompileFailed);
  damaged = right_;
  damaged.recipe.inputs.pop_back();
  EXPECT_EQ(evaluate_candidate(*runner_, job_, damaged, 0).verdict, Verdict::kWrongResult);
  expect_right_kernel_still_runs();
}

TEST_F(DeviceEvaluationTest, AWorkspaceThatDoesNotFitIsNotOk) {
  Artifact greedy = right_;
  greedy.recipe.workspace_bytes = int64_t{1} << 42;
  const Evaluation evaluation = evaluate_candidate(*runner_, job_, greedy, 0);
  EXPECT_EQ(evaluation.verdict, Verdict::kRunnerDied) << evaluation.log;
  EXPECT_TRUE(evaluation.measurement.samples_us.empty());
  expect_right_kernel_still_runs();
}

TEST_F(DeviceEvaluationTest, AFinalistThatFaultsLeavesTheOthersTheirTimes) {
  job_.kind = Job::Kind::kFinal;
  const Artifact fault = compile("if (i == 0) out[1l << 38] = 1;");
  const Artifact wrong = compile("if (i < n) out[i] = 0;");
  const auto evaluations =
      evaluate_finalists(*runner_, job_, std::vector{right_, fault, wrong, right_});
  ASSERT_EQ(evaluations.size(), 4u);
  EXPECT_EQ(evaluations[0].verdict, Verdict::kOk) << evaluations[0].log;
  EXPECT_EQ(evaluations[1].verdict, Verdict::kOutOfBounds) << evaluations[1].log;
  EXPECT_EQ(evaluations[2].verdict, Verdict::kWrongResult) << evaluations[2].log;
  EXPECT_EQ(evaluations[3].verdict, Verdict::kOk) << evaluations[3].log;
  EXPECT_GT(evaluations[0].measurement.median_us(), 0);
  EXPECT_GT(evaluations[3].measurement.median_us(), 0);
  EXPECT_TRUE(evaluations[1].measurement.samples_us.empty());
  EXPECT_TRUE(evaluations[2].measurement.samples_us.empty());
}

TEST_F(DeviceEvaluationTest, TheRunnerSaysWhichDeviceItHas) {
  const auto reply = runner_->call(runner::PrepareDevice{}, 60'000);
  ASSERT_TRUE(reply.has_value()) << reply.error().message;
  const auto* prepared = std::get_if<runner::DevicePrepared>(&*reply);
  ASSERT_NE(prepared, nullptr);
  const CudaFacts& facts = lab_->device()->facts();
  EXPECT_EQ(prepared->facts.name, facts.name);
  EXPECT_EQ(prepared->facts.bus_id, facts.bus_id);
  EXPECT_EQ(prepared->facts.target(), facts.target());
  EXPECT_EQ(prepared->facts.l2_bytes, facts.l2_bytes);
  EXPECT_EQ(prepared->facts.memory_bytes, facts.memory_bytes);
}

}  // namespace
}  // namespace kiln
