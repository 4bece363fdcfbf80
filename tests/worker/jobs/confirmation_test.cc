// A custom kernel that takes over its runner, and makes it say what is not so.
#include "worker/jobs/confirmation.h"

#include <gtest/gtest.h>

#include "tests/worker/kernels.h"

namespace kiln {
namespace {

using namespace test;

Job custom_job(Job::Kind kind = Job::Kind::kScreen) {
  Job job = add_job(kind);
  job.family = Family::kCustom;
  job.policy.race_runs = 4;
  job.policy.launch_timeout_ms = 60'000;  // of 16,384 launches, on a machine with other work
  return job;
}

RunnerProcess::Options runner() {
  return {runner_path(), 2, {}};
}

TEST(Confirmation, AnHonestKernelIsConfirmed) {
  RunnerProcess process(runner());
  const Artifact right = compile_kernel(kRight);
  const Evaluation evaluation = evaluate_candidate(process, custom_job(), right, 0);
  EXPECT_EQ(evaluation.verdict, Verdict::kOk) << evaluation.log;
  EXPECT_GT(evaluation.measurement.median_us(), 0);
  const Evaluation finalist =
      evaluate_finalists(process, custom_job(Job::Kind::kFinal), std::vector{right})[0];
  EXPECT_EQ(finalist.verdict, Verdict::kOk) << finalist.log;
}

// What a runner says that was taken over.
TEST(Confirmation, OneThatChangesTheVerdictInItsProcessIsFound) {
  RunnerProcess process(runner());
  Evaluation evaluation;
  evaluation.verdict = Verdict::kOk;
  evaluation.measurement.samples_us = {1.0, 1.0, 1.0};
  confirm(process, custom_job(), compile_kernel("out[first] = 0;"), evaluation);
  EXPECT_EQ(evaluation.verdict, Verdict::kWrongResult);
  EXPECT_NE(evaluation.log.find("not confirmed by another process"), std::string::npos)
      << evaluation.log;
  EXPECT_TRUE(evaluation.measurement.samples_us.empty());
}

TEST(Confirmation, TimesThatTheWorkersClockDoesNotShowAreNone) {
  RunnerProcess process(runner());
  const Artifact slow = compile_kernel(std::string(kRight) + "if (first == 0) usleep(200);",
                                       "extern \"C\" int usleep(unsigned);\n");
  Evaluation evaluation;
  evaluation.verdict = Verdict::kOk;
  evaluation.measurement.samples_us = {0.5, 0.5, 0.5};
  confirm(process, custom_job(), slow, evaluation);
  EXPECT_EQ(evaluation.verdict, Verdict::kWrongResult);
  EXPECT_NE(evaluation.log.find("on the worker's clock"), std::string::npos) << evaluation.log;
}

TEST(Confirmation, OneThatEndsItsRunnerIsToBlame) {
  RunnerProcess process(runner());
  Evaluation evaluation;
  evaluation.verdict = Verdict::kOk;
  confirm(process, custom_job(), compile_kernel("__builtin_trap();"), evaluation);
  EXPECT_EQ(evaluation.verdict, Verdict::kRunnerDied) << evaluation.log;
}

}  // namespace
}  // namespace kiln
