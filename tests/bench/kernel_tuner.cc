#include "tests/bench/kernel_tuner.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <random>
#include <thread>

#include "compiler_core/base/check.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/plan/plan.h"
#include "compiler_core/runtime/aligned_buffer.h"
#include "compiler_core/runtime/kernel.h"

namespace kiln::bench {
namespace {

constexpr int64_t kCompileTimeoutMs = 120'000;
constexpr int kScreenRuns = 3, kFinalRuns = 9;
constexpr size_t kFinalists = 4;

struct Candidate {
  Schedule schedule;
  Artifact artifact;
  std::optional<Kernel> kernel;
  std::vector<double> samples;
};

// Buffers of one workload, shared by its candidates.
struct Arguments {
  explicit Arguments(const Recipe& recipe) {
    for (const auto* specs : {&recipe.inputs, &recipe.outputs})
      for (const TensorSpec& spec : *specs) {
        std::vector<int64_t> sizes;
        for (const Dim& dim : spec.shape) sizes.push_back(dim.constant());
        tensors.emplace_back(spec.dtype, std::move(sizes));
        fill_random(tensors.back());
      }
    for (Tensor& tensor : tensors) pointers.push_back(tensor.data());
  }
  std::vector<Tensor> tensors;
  std::vector<void*> pointers;
  AlignedBuffer workspace;
};

Result<Candidate> make_candidate(const Workload& workload, const Schedule& schedule,
                                 const Target& target, const HostCompiler& compiler) {
  TRY(const Source source, lower_to_source(workload, schedule, target));
  Candidate candidate{schedule, {}, {}, {}};
  TRY(candidate.artifact, compiler.compile(source, target, kCompileTimeoutMs));
  TRY(candidate.kernel, Kernel::load(candidate.artifact));
  return candidate;
}

// Two compiles at once: this machine's share.
Result<std::vector<Candidate>> make_candidates(const Workload& workload,
                                               const std::vector<Schedule>& schedules,
                                               const Target& target, const HostCompiler& compiler) {
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < schedules.size(); i += 2) {
    const bool pair = i + 1 < schedules.size();
    Result<Candidate> first = fail(Code::kInternal, "not compiled");
    Result<Candidate> second = fail(Code::kInternal, "not compiled");
    std::thread other([&] {
      if (pair) second = make_candidate(workload, schedules[i + 1], target, compiler);
    });
    first = make_candidate(workload, schedules[i], target, compiler);
    other.join();
    TRY(Candidate made, std::move(first));
    candidates.push_back(std::move(made));
    if (!pair) break;
    TRY(Candidate also_made, std::move(second));
    candidates.push_back(std::move(also_made));
  }
  return candidates;
}

void run_once(Candidate& candidate, Arguments& arguments, ThreadPool& pool, bool counts) {
  const int64_t workspace = candidate.kernel->recipe().workspace_bytes.constant();
  CHECK(arguments.workspace.reserve(workspace).has_value(), "memory for a workspace");
  const double us = microseconds_of(
      [&] { candidate.kernel->launch(arguments.pointers, {}, arguments.workspace.data(), pool); });
  if (counts) candidate.samples.push_back(us);
}

Result<ProgramKernel> tune_kernel(const Workload& workload, const Target& target,
                                  const HostCompiler& compiler, ThreadPool& pool, int most,
                                  Artifact& winner) {
  TRY(std::vector<Schedule> schedules, search_space(workload, target));
  schedules.resize(std::min(schedules.size(), static_cast<size_t>(most)));
  TRY(std::vector<Candidate> candidates, make_candidates(workload, schedules, target, compiler));
  Arguments arguments(candidates[0].artifact.recipe);
  for (Candidate& candidate : candidates)
    for (int run = 0; run <= kScreenRuns; ++run) run_once(candidate, arguments, pool, run > 0);
  // The best few, and the first guess, which stays in front.
  std::sort(candidates.begin() + 1, candidates.end(), [](const Candidate& a, const Candidate& b) {
    return median(a.samples) < median(b.samples);
  });
  candidates.resize(std::min(candidates.size(), kFinalists + 1));
  for (Candidate& candidate : candidates) candidate.samples.clear();
  for (int run = 0; run < kFinalRuns; ++run)
    for (Candidate& candidate : candidates) run_once(candidate, arguments, pool, true);
  const double first_us = median(candidates[0].samples);
  Candidate& best = *std::min_element(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return median(a.samples) < median(b.samples); });
  ProgramKernel kernel;
  kernel.workload = workload.digest;
  kernel.family = to_string(workload.family);
  kernel.schedule = best.schedule.to_string();
  kernel.blob = best.artifact.digest;
  kernel.recipe = best.artifact.recipe;
  kernel.report.candidates = kernel.report.measured = static_cast<int>(schedules.size());
  kernel.report.first_us = first_us;
  kernel.report.best_us = median(best.samples);
  winner = std::move(best.artifact);
  return kernel;
}

}  // namespace

Result<TunedProgram> tune_program(const Graph& canonical, const Target& target,
                                  const HostCompiler& compiler, ThreadPool& pool, int most) {
  TRY(Plan planned, plan(canonical));
  TunedProgram tuned;
  for (const Workload& workload : planned.kernels) {
    Artifact artifact;
    TRY(ProgramKernel kernel, tune_kernel(workload, target, compiler, pool, most, artifact));
    tuned.program.kernels.push_back(std::move(kernel));
    tuned.artifacts.push_back(std::move(artifact));
  }
  tuned.program.target = target;
  tuned.program.mode = Mode::kMaxAutotune;
  tuned.program.buffers = std::move(planned.buffers);
  tuned.program.launches = std::move(planned.launches);
  tuned.program.output_buffers = std::move(planned.output_buffers);
  tuned.program.arena_bytes = planned.arena_bytes;
  return tuned;
}

void fill_random(Tensor& tensor) {
  constexpr int64_t kPattern = 16'381;  // prime, so that rows differ
  Tensor pattern(tensor.dtype(), {std::min(kPattern, tensor.numel())});
  std::mt19937 random(17);
  std::uniform_real_distribution<double> real(-1, 1);
  for (int64_t i = 0; i < pattern.numel(); ++i)
    if (is_float(tensor.dtype()))
      pattern.set(i, real(random));
    else
      pattern.set_int(i, random() % (tensor.dtype() == DType::kBool ? 2 : 16));
  const auto from = pattern.bytes(), to = tensor.bytes();
  for (size_t at = 0; at < to.size(); at += from.size())
    std::memcpy(to.data() + at, from.data(), std::min(from.size(), to.size() - at));
}

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples.empty() ? 0 : samples[samples.size() / 2];
}

double microseconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

}  // namespace kiln::bench
