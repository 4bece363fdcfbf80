// Every candidate of every kernel of a program, compiled for a GPU that need not be here: what
// tests/gpu/candidates.py times. For looking at a search space, not for users.
//
//   candidates FILE... --out DIR [--target cuda:sm_90a] [--alternative NAME] [--schedule TEXT]...
//
// writes DIR/<program>/<kernel>-<candidate>/{manifest.json, binding.json, <blob>.cubin}: the
// program with that candidate in the kernel's place, and the first schedule everywhere else; and
// prints what each one uses of the device. Those of the second alternative plan (plan/alternatives.h)
// end in "-w1". Schedules that are given stand behind those of their templates, where they fit.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <set>

#include "compiler_core/base/file.h"
#include "compiler_core/compile/local.h"
#include "compiler_core/compile/nvrtc.h"
#include "compiler_core/compile/nvrtc_compiler.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/kernels/untimed_partition.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/alternatives.h"

namespace {

using namespace kiln;

// H200: what `cuda` means on the card that this is for.
Target full_target(Target target) {
  if (target.isa == "sm_90a") target.units = 132;
  return target;
}

Status write_program(const Path& directory, const Program& program,
                     const std::vector<int>& input_order, std::span<const Artifact> artifacts) {
  std::filesystem::create_directories(directory);
  TRY_STATUS(write_file(directory / "manifest.json", program_to_json(program)));
  TRY_STATUS(write_file(directory / "binding.json",
                        nlohmann::json({{"input_order", input_order}}).dump()));
  for (const Artifact& artifact : artifacts)
    TRY_STATUS(write_file(directory / (artifact.digest.hex() + ".cubin"), artifact.binary));
  return {};
}

// The candidates of a kernel, and those of `more` whose templates are among theirs.
Result<std::vector<Schedule>> schedules_of(const Workload& workload, const Target& target,
                                           std::span<const Schedule> more) {
  TRY(std::vector<Schedule> schedules, search_space(workload, target));
  std::vector<Schedule> added;
  for (const Schedule& each : more) {
    const auto is_named = [&](const Schedule& x) { return x.template_name == each.template_name; };
    if (std::ranges::any_of(schedules, is_named) &&
        std::ranges::find(schedules, each) == schedules.end())
      added.push_back(each);
  }
  schedules.insert(schedules.end(), added.begin(), added.end());
  return schedules;
}

// `suffix`: of the names of its candidates.
Status export_plan(const Path& file, const Path& out, const NormalForm& form, const Plan& planned,
                   const std::string& suffix, const Target& target, const Nvrtc& nvrtc,
                   std::span<const Schedule> more) {
  const NvrtcCompiler compiler(nvrtc);
  TRY(LocalCompilation base, compile_locally(planned, form.digest, target, compiler, 2));
  std::set<Digest> seen;
  for (size_t k = 0; k < planned.kernels.size(); ++k) {
    TRY(const std::vector<Schedule> schedules, schedules_of(planned.kernels[k], target, more));
    for (size_t i = 0; i < schedules.size(); ++i) {
      auto source = lower_to_source(planned.kernels[k], schedules[i], target);
      if (!source) {
        fmt::print("{} {}-{}{} {}: {}\n", file.stem().string(), k, i, suffix,
                   schedules[i].to_string(), source.error().message);
        continue;
      }
      const std::clock_t start = std::clock();
      TRY(Nvrtc::Object object, nvrtc.compile(*source, target));
      const double ms = 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
      const KernelResources& used = object.resources;
      fmt::print(
          "{} {}-{}{} {}: {} registers, {} bytes spilled, {} stack, {} shared, {} bytes, "
          "{:.0f} ms{}\n",
          file.stem().string(), k, i, suffix, schedules[i].to_string(), used.registers,
          used.spill_bytes, used.stack_bytes, source->recipe.phases[0].shared_bytes,
          object.artifact.binary.size(), ms,
          seen.insert(object.artifact.digest).second ? "" : " (a twin)");
      std::fflush(stdout);
      LocalCompilation made = base;
      made.program.kernels[k].schedule = schedules[i].to_string();
      made.program.kernels[k].blob = object.artifact.digest;
      made.program.kernels[k].recipe = object.artifact.recipe;
      made.artifacts[k] = std::move(object.artifact);
      TRY_STATUS(write_program(out / file.stem() / fmt::format("{}-{}{}", k, i, suffix),
                               made.program, form.input_order, made.artifacts));
    }
  }
  return {};
}

// `only`: the name of one of the alternatives; else all.
Status export_candidates(const Path& file, const Path& out, const Target& target,
                         const Nvrtc& nvrtc, const std::string& only,
                         std::span<const Schedule> more) {
  TRY(const ExportedProgram exported, read_graph_file(file));
  TRY(const NormalForm form, normalise(exported.graph));
  TRY(const std::vector<PlanAlternative> ways,
      plan_alternatives(form.graph, partition_rules(target)));
  for (size_t way = 0; way < ways.size(); ++way) {
    if (!only.empty() && ways[way].name != only) continue;
    const std::string suffix = way == 0 ? "" : fmt::format("-w{}", way);
    const Status done = export_plan(file, out, form, ways[way].plan, suffix, target, nvrtc, more);
    if (!done && way == 0) return done;
    if (!done)
      fmt::print("{} {}: {}\n", file.stem().string(), ways[way].name, done.error().message);
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> files, schedule_texts;
  std::string out, only, target_text = "cuda:sm_90a";
  CLI::App app("Compiles every candidate of every kernel of programs, for tests/gpu/candidates.py");
  app.add_option("FILE", files, "programs")->required();
  app.add_option("--out", out, "directory to write")->required();
  app.add_option("--target", target_text);
  app.add_option("--alternative", only, "of one alternative plan alone, \"operands of 8 bits\"");
  app.add_option("--schedule", schedule_texts,
                 "a further schedule, \"cuda.matmul.wgmma bm=128 ...\"");
  CLI11_PARSE(app, argc, argv);
  const auto target = Target::parse(target_text);
  const auto nvrtc = Nvrtc::find();
  if (!target || !nvrtc) {
    fmt::print(stderr, "{}\n", (!target ? target.error() : nvrtc.error()).message);
    return 2;
  }
  std::vector<Schedule> more;
  for (const std::string& text : schedule_texts) {
    const auto schedule = Schedule::parse(text);
    if (!schedule) {
      fmt::print(stderr, "{}\n", schedule.error().message);
      return 2;
    }
    more.push_back(*schedule);
  }
  int failed = 0;
  for (const std::string& file : files)
    if (const Status done = export_candidates(file, out, full_target(*target), *nvrtc, only, more);
        !done) {
      fmt::print(stderr, "{}: {}\n", file, done.error().message);
      ++failed;
    }
  return failed > 0 ? 1 : 0;
}
