#include "compiler_core/compile/local.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "compiler_core/kernels/registry.h"
#include "compiler_core/kernels/untimed_partition.h"
#include "compiler_core/plan/plan.h"
#include "compiler_core/tune/measurement.h"

namespace kiln {
namespace {

constexpr int64_t kCompileTimeoutMs = 60'000;

struct LocalKernel {
  ProgramKernel kernel;
  Artifact artifact;
};

Result<LocalKernel> make_kernel(const Workload& workload, const Target& target,
                                const KernelCompiler& compiler) {
  TRY(const std::vector<Schedule> schedules, search_space(workload, target));
  const Schedule& first = schedules.front();
  TRY(const Buildable buildable, lower(workload, first, target));
  LocalKernel made;
  TRY(made.artifact, compiler.build(buildable, target, kCompileTimeoutMs));
  made.kernel.workload = workload.digest;
  made.kernel.key = kernel_key(workload.digest, target, Mode::kDefault, MeasurementPolicy{});
  made.kernel.templates = covering_templates(template_versions(), workload, target);
  made.kernel.family = to_string(workload.family);
  made.kernel.schedule = first.to_string();
  made.kernel.blob = made.artifact.digest;
  made.kernel.recipe = made.artifact.recipe;
  made.kernel.verified = false;
  made.kernel.report.candidates = 1;
  return made;
}

// Every kernel, at most `jobs` at once; in order. Each thread takes the next one that is left.
std::vector<Result<LocalKernel>> make_kernels(const std::vector<Workload>& workloads,
                                              const Target& target, const KernelCompiler& compiler,
                                              int jobs) {
  std::vector<Result<LocalKernel>> made(workloads.size(), fail(Code::kInternal, "not compiled"));
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < workloads.size();)
      made[i] = make_kernel(workloads[i], target, compiler);
  };
  std::vector<std::thread> threads;
  const size_t helpers = std::min(workloads.size(), static_cast<size_t>(std::max(jobs, 1)));
  for (size_t i = 1; i < helpers; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return made;
}

}  // namespace

Result<LocalCompilation> compile_locally(const Graph& canonical, const Digest& graph_digest,
                                         const Target& target, const KernelCompiler& compiler,
                                         int jobs) {
  TRY(PlanAlternative chosen, untimed_partition(canonical, target));
  return compile_locally(std::move(chosen.plan), graph_digest, target, compiler, jobs);
}

Result<LocalCompilation> compile_locally(Plan planned, const Digest& graph_digest,
                                         const Target& target, const KernelCompiler& compiler,
                                         int jobs) {
  const std::vector<Workload> workloads = std::move(planned.kernels);
  LocalCompilation local;
  local.program = program_of(std::move(planned));
  for (Result<LocalKernel>& made : make_kernels(workloads, target, compiler, jobs)) {
    if (!made) return fail(std::move(made).error());
    local.program.kernels.push_back(std::move(made->kernel));
    local.artifacts.push_back(std::move(made->artifact));
  }
  Program& program = local.program;
  program.key = program_key(graph_digest, target, Mode::kDefault);
  program.graph = graph_digest;
  program.target = target;
  program.mode = Mode::kDefault;
  program.template_stamp = template_stamp(template_versions());
  return local;
}

}  // namespace kiln
