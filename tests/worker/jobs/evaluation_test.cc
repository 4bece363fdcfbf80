// Kernels that misbehave in every way, tried in a real runner: each gets its verdict, none is ok,
// and a right one that comes after is still measured.
#include "worker/jobs/evaluation.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/worker/kernels.h"

namespace kiln {
namespace {

using namespace test;

struct Misbehaviour {
  const char* name;
  Verdict verdict;
  const char* log;  // what the log must say
  const char* body;
  const char* prelude = "";
};

const Misbehaviour kMisbehaviours[] = {
    {"wrong_element", Verdict::kWrongResult, "element 517 [517] is",
     "for (long i = first; i < last; ++i) out[i] = a[i] + b[i] + (i == 517);"},
    {"not_a_number", Verdict::kWrongResult, "nan",
     "for (long i = first; i < last; ++i) out[i] = i == 3 ? __builtin_nanf(\"\") : a[i] + b[i];"},
    {"unwritten", Verdict::kWrongResult, "element 999 [999] is nan, expected",
     "for (long i = first; i < last - (last == 1000); ++i) out[i] = a[i] + b[i];"},
    {"unwritten_is_said", Verdict::kWrongResult, "left unwritten", ""},
    {"reads_what_was_there", Verdict::kWrongResult, "element 8 ",
     "for (long i = first; i < last; ++i) out[i] = i == 8 ? out[i] * 0 + 1 : a[i] + b[i];"},
    {"one_before", Verdict::kOutOfBounds, "before output 0",
     "for (long i = first; i < last; ++i) out[i] = a[i] + b[i];\n if (begin == 0) out[-1] = 1;"},
    {"one_behind", Verdict::kOutOfBounds, "wrote 0 bytes behind output 0",
     "for (long i = first; i < last; ++i) out[i] = a[i] + b[i];\n if (last == 1000) out[last] = "
     "1;"},
    {"behind_an_input", Verdict::kOutOfBounds, "behind input 1",
     "for (long i = first; i < last; ++i) out[i] = a[i] + b[i];\n if (last == 1000) b[last] = 1;"},
    {"writes_an_input", Verdict::kOutOfBounds, "wrote into input 0 at element 41",
     "for (long i = first; i < last; ++i) out[i] = a[i] + b[i];\n if (begin == 0) a[41] += 1;"},
    {"far_away", Verdict::kRunnerDied, "the runner ",
     "for (long i = first; i < last; ++i) out[i] = a[i] + b[i];\n if (begin == 0) out[1 << 14] = "
     "1;"},
    {"null", Verdict::kRunnerDied, "the runner ", "*(volatile int*)0 = 1;"},
    {"abort", Verdict::kRunnerDied, "the runner ", "abort();", "extern \"C\" void abort();"},
    {"exits", Verdict::kRunnerDied, "the runner ", "_exit(0);", "extern \"C\" void _exit(int);"},
    {"illegal_instruction", Verdict::kRunnerDied, "the runner ", "__builtin_trap();"},
    {"never_ends", Verdict::kTimedOut, "killed", "for (volatile int i = 0;; ) i = i + 1;"},
    {"takes_all_memory", Verdict::kRunnerDied, "the runner ",
     "for (;;) { volatile char* p = (char*)malloc(1L << 36); for (long i = 0; i < 1L << 36; i += "
     "4096)"
     " p[i] = 1; }",
     "extern \"C\" void* malloc(unsigned long);"},
};

class EvaluationTest : public ::testing::Test {
 protected:
  EvaluationTest() : runner_({runner_path(), 2, {}}) {
    job_ = add_job();
    job_.policy.launch_timeout_ms = kPatienceMs;
    job_.policy.race_runs = 5;
  }
  static constexpr int64_t kPatienceMs = 60'000;  // with a machine that has other work
  static constexpr double kRaceBudgetMs = 3000;  // of a CPU: a race that took longer has fewer runs
  void expect_right_kernel_still_runs() {
    Evaluation evaluation;
    do evaluation = evaluate_candidate(runner_, job_, right_, 0);
    while (evaluation.verdict == Verdict::kOk && evaluation.measure_ms >= kRaceBudgetMs);
    EXPECT_EQ(evaluation.verdict, Verdict::kOk) << evaluation.log;
    EXPECT_EQ(evaluation.measurement.samples_us.size(), 5u);
    EXPECT_GT(evaluation.measurement.median_us(), 0);
  }
  RunnerProcess runner_;
  Job job_;
  const Artifact right_ = compile_kernel(kRight);
};

TEST_F(EvaluationTest, ARightKernelIsVerifiedAndTimed) {
  expect_right_kernel_still_runs();
}

TEST_F(EvaluationTest, EveryMisbehaviourHasItsVerdictAndHarmsNobodyElse) {
  for (const Misbehaviour& bad : kMisbehaviours) {
    SCOPED_TRACE(bad.name);
    const Artifact artifact = compile_kernel(bad.body, bad.prelude);
    if (bad.verdict == Verdict::kTimedOut) job_.policy.launch_timeout_ms = 300;
    const Evaluation evaluation = evaluate_candidate(runner_, job_, artifact, 0);
    job_.policy.launch_timeout_ms = kPatienceMs;
    EXPECT_EQ(evaluation.verdict, bad.verdict) << evaluation.log;
    EXPECT_NE(evaluation.log.find(bad.log), std::string::npos) << evaluation.log;
    EXPECT_TRUE(evaluation.measurement.samples_us.empty());
    expect_right_kernel_still_runs();
  }
}

TEST_F(EvaluationTest, CompileJobsAreVerifiedAndNotTimed) {
  job_.kind = Job::Kind::kCompile;
  const Evaluation evaluation = evaluate_candidate(runner_, job_, right_, 0);
  EXPECT_EQ(evaluation.verdict, Verdict::kOk) << evaluation.log;
  EXPECT_TRUE(evaluation.measurement.samples_us.empty());
}

TEST_F(EvaluationTest, ASlowKernelLosesTheRaceAfterTheScreen) {
  const Evaluation evaluation =
      evaluate_candidate(runner_, job_, right_, 1e-6);  // an incumbent nobody beats
  EXPECT_EQ(evaluation.verdict, Verdict::kOk) << evaluation.log;
  EXPECT_TRUE(evaluation.dropped);
  EXPECT_EQ(evaluation.measurement.samples_us.size(), static_cast<size_t>(job_.policy.screen_runs));
}

TEST_F(EvaluationTest, ADamagedBinaryIsNeverLoaded) {
  Artifact damaged = right_;
  damaged.binary[damaged.binary.size() / 2] ^= 1;
  EXPECT_EQ(evaluate_candidate(runner_, job_, damaged, 0).verdict, Verdict::kRunnerDied);
  damaged.binary = "not an object";
  damaged.digest = Digest::of(damaged.binary);
  EXPECT_EQ(evaluate_candidate(runner_, job_, damaged, 0).verdict, Verdict::kCompileFailed);
  damaged = right_;
  damaged.recipe.phases[0].entry = "elsewhere";
  EXPECT_EQ(evaluate_candidate(runner_, job_, damaged, 0).verdict, Verdict::kCompileFailed);
  expect_right_kernel_still_runs();
}

TEST_F(EvaluationTest, AWorkspaceThatDoesNotFitIsNotOk) {
  Artifact greedy = right_;
  greedy.recipe.workspace_bytes = int64_t{1} << 40;
  const Evaluation evaluation = evaluate_candidate(runner_, job_, greedy, 0);
  EXPECT_EQ(evaluation.verdict, Verdict::kRunnerDied);
  EXPECT_NE(evaluation.log.find("no memory"), std::string::npos) << evaluation.log;
  expect_right_kernel_still_runs();
}

TEST_F(EvaluationTest, FinalistsAreTimedInEqualRounds) {
  job_.kind = Job::Kind::kFinal;
  const Artifact other =
      compile_kernel("for (long i = first; i < last; ++i) out[i] = b[i] + a[i];");
  const auto evaluations = evaluate_finalists(runner_, job_, std::vector{right_, other});
  ASSERT_EQ(evaluations.size(), 2u);
  for (const Evaluation& evaluation : evaluations)
    EXPECT_EQ(evaluation.verdict, Verdict::kOk) << evaluation.log;
  EXPECT_GE(evaluations[0].measurement.samples_us.size(), 10u);
  EXPECT_EQ(evaluations[0].measurement.samples_us.size(),
            evaluations[1].measurement.samples_us.size());
}

TEST_F(EvaluationTest, AFinalistThatCrashesLeavesTheOthersTheirTimes) {
  job_.kind = Job::Kind::kFinal;
  const Artifact crash = compile_kernel("*(volatile int*)0 = 1;");
  const Artifact wrong = compile_kernel("for (long i = first; i < last; ++i) out[i] = 0;");
  const auto evaluations =
      evaluate_finalists(runner_, job_, std::vector{right_, crash, wrong, right_});
  ASSERT_EQ(evaluations.size(), 4u);
  EXPECT_EQ(evaluations[0].verdict, Verdict::kOk) << evaluations[0].log;
  EXPECT_EQ(evaluations[1].verdict, Verdict::kRunnerDied);
  EXPECT_EQ(evaluations[2].verdict, Verdict::kWrongResult);
  EXPECT_EQ(evaluations[3].verdict, Verdict::kOk) << evaluations[3].log;
  EXPECT_GT(evaluations[0].measurement.median_us(), 0);
  EXPECT_GT(evaluations[3].measurement.median_us(), 0);
  EXPECT_TRUE(evaluations[1].measurement.samples_us.empty());
}

// Unloading is nobody's launch; where the runner lives on, it happens when the next workload is
// opened, which may take ten minutes.
TEST_F(EvaluationTest, AUsersKernelThatHangsWhereItIsUnloadedHoldsUpNoOther) {
  job_.family = Family::kCustom;
  job_.kind = Job::Kind::kCompile;  // no times, which a busy machine may contradict
  const Artifact hangs =
      compile_kernel(kRight,
                     "extern \"C\" int pause();\n"
                     "__attribute__((destructor)) static void at_end() { for (;;) pause(); }\n");
  for (int i = 0; i < 2; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const Evaluation evaluation = evaluate_candidate(runner_, job_, hangs, 0);
    EXPECT_EQ(evaluation.verdict, Verdict::kOk) << evaluation.log;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(5));
  }
  EXPECT_EQ(evaluate_candidate(runner_, job_, right_, 0).verdict, Verdict::kOk);
}

// One leaves a mark in its process, the other is wrong where it finds one.
TEST_F(EvaluationTest, AUsersKernelsHaveARunnerEachOnAGpuToo) {
  const std::string environment =
      "extern \"C\" int setenv(const char*, const char*, int);\n"
      "extern \"C\" char* getenv(const char*);\n";
  const Artifact leaves =
      compile_kernel(std::string(kRight) + "setenv(\"WAS_HERE\", \"1\", 1);", environment);
  const Artifact finds = compile_kernel(
      std::string(kRight) + "if (getenv(\"WAS_HERE\")) out[first] = 0;", environment);
  // Of a GPU's runner only the kind, by which these decide.
  RunnerProcess::Options of_a_gpu{runner_path(), 2, {}};
  of_a_gpu.kind = SandboxKind::kGpuRunner;
  RunnerProcess runner(of_a_gpu);
  job_.kind = Job::Kind::kFinal;
  job_.family = Family::kCustom;
  for (const Evaluation& each : evaluate_finalists(runner, job_, std::vector{leaves, finds}))
    EXPECT_EQ(each.verdict, Verdict::kOk) << each.log;
  job_.kind = Job::Kind::kScreen;
  for (const Artifact& artifact : {leaves, finds})
    EXPECT_EQ(evaluate_candidate(runner, job_, artifact, 0).verdict, Verdict::kOk);
  job_.family = Family::kPointwise;
  CandidateJob& offered = job_.candidates.emplace_back();
  offered.schedule.template_name = "offered.leaves.0";
  offered.binary = leaves.binary;
  EXPECT_EQ(evaluate_candidate(runner, job_, leaves, 0).verdict, Verdict::kOk);
  EXPECT_EQ(evaluate_candidate(runner, job_, finds, 0).verdict, Verdict::kOk);
  for (const Evaluation& each : evaluate_finalists(runner, job_, std::vector{leaves, finds}))
    EXPECT_EQ(each.verdict, Verdict::kOk) << each.log;
  job_.candidates.clear();  // Kiln's own kernels share one
  EXPECT_EQ(evaluate_candidate(runner, job_, leaves, 0).verdict, Verdict::kOk);
  EXPECT_EQ(evaluate_candidate(runner, job_, finds, 0).verdict, Verdict::kWrongResult);
}

// Takes twelve seconds: eight times what a runner may be silent.
TEST_F(EvaluationTest, AKernelThatSaysForEverThatItIsAliveIsEnded) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  ASSERT_TRUE(runner::send_frame(ends[0], runner::encode(runner::Progress{}), 1000));
  unsigned char frame[256];
  const ssize_t size = ::recv(ends[1], frame, sizeof frame, 0);
  for (const int end : ends) ::close(end);
  std::string bytes;
  for (ssize_t i = 0; i < size; ++i) bytes += std::to_string(frame[i]) + ",";
  const Artifact alive =
      compile_kernel("for (;;) { write(3, frame, sizeof frame); usleep(50000); }",
                     "extern \"C\" int usleep(unsigned);\n"
                     "extern \"C\" long write(int, const void*, unsigned long);\n"
                     "static const unsigned char frame[] = {" +
                         bytes + "};\n");
  job_.policy.launch_timeout_ms = 1;
  const Evaluation evaluation = evaluate_candidate(runner_, job_, alive, 0);
  EXPECT_EQ(evaluation.verdict, Verdict::kTimedOut);
  EXPECT_NE(evaluation.log.find("busy for"), std::string::npos) << evaluation.log;
  job_.policy.launch_timeout_ms = kPatienceMs;
  expect_right_kernel_still_runs();
}

// Between two calls it is nobody's fault (below): the kernel says that it runs.
TEST_F(EvaluationTest, KillingTheRunnerInTheMiddleIsAVerdictAndItIsStartedAgain) {
  const TempDir dir = TempDir::create().value();
  const Path runs = dir.path() / "runs";
  const Artifact endless = compile_kernel(
      "creat(\"" + runs.string() + "\", 0600); for (volatile int i = 0;; ) i = i + 1;",
      "extern \"C\" int creat(const char*, unsigned);");
  std::thread killer([&] {
    for (int i = 0; i < 60'000 && !std::filesystem::exists(runs); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    runner_.kill();
  });
  const Evaluation evaluation = evaluate_candidate(runner_, job_, endless, 0);
  killer.join();
  EXPECT_EQ(evaluation.verdict, Verdict::kRunnerDied);
  EXPECT_NE(evaluation.log.find("signal 9"), std::string::npos) << evaluation.log;
  expect_right_kernel_still_runs();
}

TEST_F(EvaluationTest, ARunnerKilledBetweenTrialsIsNotTheNextOnesFault) {
  expect_right_kernel_still_runs();
  ::kill(runner_.pid(), SIGKILL);
  siginfo_t died;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(runner_.pid()), &died, WEXITED | WNOWAIT), 0);
  expect_right_kernel_still_runs();
}

TEST_F(EvaluationTest, AMissingRunnerIsSaid) {
  RunnerProcess missing({"/nonexistent/kiln-runner", 1, {}});
  const Evaluation evaluation = evaluate_candidate(missing, job_, right_, 0);
  EXPECT_EQ(evaluation.verdict, Verdict::kRunnerDied);
  EXPECT_NE(evaluation.log.find("cannot start"), std::string::npos) << evaluation.log;
}

}  // namespace
}  // namespace kiln
