// What the sandbox adds to a candidate on a GPU: a kernel that every candidate's runner is kept for,
// and a user's, whose candidates have a runner each and so a CUDA context each. Prints; timing decides
// nothing. Asked for by name:
//
//   gpu_test --gtest_also_run_disabled_tests --gtest_filter='SandboxCost.*'
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "tests/gpu/gpu_lab.h"
#include "worker/jobs/evaluation.h"
#include "worker/local_device.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kSmallAdd[] =
    "kiln.graph 1\n"
    "%0 = input 0 : f32[10000]\n"
    "%1 = input 1 : f32[10000]\n"
    "%2 = add %0 %1 : f32[10000]\n"
    "return %2\n";
constexpr char kAddKernel[] =
    "KILN_KERNEL(256, 1) kernel(float* a, float* b, float* out) {\n"
    "  const long i = block_index() * 256l + thread_index();\n"
    "  if (i < 10000) out[i] = a[i] + b[i];\n}\n";

struct Costs {
  std::vector<double> wall_ms, cpu_ms;
};

double cpu_ms() {
  double total = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used{};
    ::getrusage(who, &used);
    total += 1e3 * static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
             1e-3 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
  }
  return total;
}

class SandboxCost : public test::GpuTest {
 protected:
  RunnerProcess::Options runner(Sandbox::Mode mode) const {
    const test::GpuFlags& flags = lab_->flags();
    DeviceOptions options;
    options.runner = flags.runner;
    options.libcuda = flags.libcuda;
    options.libnvrtc = flags.libnvrtc;
    options.sandbox = mode;
    if (const char* const path = std::getenv("LD_LIBRARY_PATH")) options.library_path = path;
    auto device = open_device("cuda:" + std::to_string(flags.ordinal), options);
    EXPECT_TRUE(device.has_value()) << device.error().message;
    if (!device) return {};
    std::printf("sandbox: %s\n", device->sandbox.c_str());
    device->runner.prepare = [this] {
      const Artifact& utility = lab_->utility_kernels();
      return runner::PrepareDevice{utility.binary, utility.digest};
    };
    return std::move(device->runner);
  }
  void try_once(RunnerProcess& runner, bool of_its_own, Costs& costs) const {
    Job job;
    job.lease = job.epoch = 1;
    job.kind = Job::Kind::kCompile;  // verified, not timed
    job.kernel_key = Digest::of("a kernel");
    job.target = lab_->device()->facts().target();
    job.workload_text = kSmallAdd;
    job.seed = 7;
    const double cpu = cpu_ms();
    const auto begin = Clock::now();
    const Evaluation evaluation = evaluate_candidate(runner, job, kernel_, 0);
    if (of_its_own) runner.end();
    costs.wall_ms.push_back(
        std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    costs.cpu_ms.push_back(cpu_ms() - cpu);  // of runners that have ended
    EXPECT_EQ(evaluation.verdict, Verdict::kOk) << evaluation.log;
  }
  Artifact kernel_;
};

void print(const char* what, std::vector<double> in, std::vector<double> out) {
  std::ranges::sort(in);
  std::ranges::sort(out);
  for (const size_t percent : {25, 50, 75}) {
    const size_t at = in.size() * percent / 100;
    std::printf("%s, percentile %zu: %.2f ms in the sandbox, %.2f ms without, %.2f ms more\n", what,
                percent, in[at], out[at], in[at] - out[at]);
  }
  std::fflush(stdout);
}

TEST_F(SandboxCost, DISABLED_OfACandidate) {
  const TensorSpec spec{DType::kF32, {10'000}};
  kernel_ = lab_->compile(kAddKernel, {{spec, spec}, {spec}, {{"kernel", 40, 256, 1, 0}}, 0, 0});
  RunnerProcess inside(runner(Sandbox::Mode::kAuto)), outside(runner(Sandbox::Mode::kOff));
  for (const bool of_its_own : {false, true}) {
    Costs with, without, warm;
    try_once(inside, of_its_own, warm);
    try_once(outside, of_its_own, warm);
    const int times = of_its_own ? 60 : 300;
    for (int i = 0; i < times; ++i) {
      try_once(inside, of_its_own, with);
      try_once(outside, of_its_own, without);
    }
    std::printf("%d candidates each, %s\n", times,
                of_its_own ? "a runner for each" : "a runner for all");
    print("the wall's clock", with.wall_ms, without.wall_ms);
    if (of_its_own) print("processor time", with.cpu_ms, without.cpu_ms);
  }
}

}  // namespace
}  // namespace kiln
